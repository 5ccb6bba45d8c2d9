//! The public Rust surface, without Python.
mod optics;
