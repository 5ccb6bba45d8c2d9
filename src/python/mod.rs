//! The only folder that knows PyO3: extract, release the interpreter, call the core, wrap.

mod analytic;
mod arrays;
mod errors;
mod optics;
mod runners;
mod schedule;

use pyo3::prelude::*;

#[pymodule(gil_used = false)]
mod _core {
    use super::{Bound, PyModule, PyModuleMethods, PyResult};

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }

    #[pymodule_export]
    use super::build_info;

    #[pymodule_export]
    use super::runners::{
        causal_softmax, dequantize, divergence, log_sum_exp, readout, rms_norm, rope, swiglu, walsh,
    };

    #[pymodule_export]
    use super::analytic::{PyAlone, PyMoments};
    #[pymodule_export]
    use super::optics::OpticalLayer;
    #[pymodule_export]
    use super::schedule::{PyEngine, PyStepTable, py_gap_edges_ps};
}

/// Returns how the extension was built and what it can use on this machine.
#[pyfunction]
fn build_info() -> std::collections::BTreeMap<&'static str, String> {
    [
        ("version", env!("CARGO_PKG_VERSION").to_owned()),
        ("profile", if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned()),
        ("target", format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS)),
        ("isa", isa_text()),
    ]
    .into_iter()
    .collect()
}

/// Names the instruction set in use, or why the one asked for is not.
fn isa_text() -> String {
    let all: Vec<_> = crate::optics::Isa::available().iter().map(|isa| isa.name()).collect();
    match crate::optics::Isa::detect() {
        Ok(isa) => format!("{} of {}", isa.name(), all.join(", ")),
        Err(error) => error.to_string(),
    }
}
