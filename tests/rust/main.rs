//! The public Rust surface, without Python.
