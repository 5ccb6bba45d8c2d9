//! The one conversion from the crate's error to Python's.

use pyo3::PyErr;
use pyo3::exceptions::{PyKeyboardInterrupt, PyValueError};

use crate::error::Error;

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error {
            Error::Cancelled => PyKeyboardInterrupt::new_err(text),
            Error::Range { .. } | Error::Shape { .. } => PyValueError::new_err(text),
        }
    }
}
