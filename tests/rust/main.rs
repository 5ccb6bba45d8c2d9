//! The public Rust surface, without Python.
mod optics;
mod optics_fuzz;
