//! Tokens in time.
