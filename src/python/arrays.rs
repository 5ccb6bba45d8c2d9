//! NumPy arrays in and out: borrowed, C-contiguous, never copied or cast.

use numpy::{PyReadonlyArray2, PyReadwriteArray2, PyUntypedArrayMethods};

use crate::error::Error;

/// Borrows a matrix row by row, with its shape.
pub(super) fn matrix<'a>(
    name: &str,
    array: &'a PyReadonlyArray2<'_, f32>,
) -> Result<(&'a [f32], [usize; 2]), Error> {
    let shape = [array.shape()[0], array.shape()[1]];
    let slice = array.as_slice().map_err(|_| not_contiguous(name))?;
    Ok((slice, shape))
}

/// Borrows a matrix for writing.
pub(super) fn matrix_mut<'a>(
    name: &str,
    array: &'a mut PyReadwriteArray2<'_, f32>,
) -> Result<(&'a mut [f32], [usize; 2]), Error> {
    let shape = [array.shape()[0], array.shape()[1]];
    let slice = array.as_slice_mut().map_err(|_| not_contiguous(name))?;
    Ok((slice, shape))
}

fn not_contiguous(name: &str) -> Error {
    Error::range(
        name,
        "not contiguous",
        format!("rows in C order: numpy.ascontiguousarray({name})"),
    )
}
