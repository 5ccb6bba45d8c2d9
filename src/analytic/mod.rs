//! What one pool of servers carries alone, by closed form.
//!
//! A prefill pool is a gated queue (a step takes what waits, up to the chunk); a decode pool holds
//! as many sequences as its arrivals need; a mixed pool does both, prefill stretching the steps of
//! decode. Overload is carried from bin to bin as a fluid.
//!
//! ```text
//! moments of the traffic ─┐
//! step table ──► steps ───┴─► late requests by load ──► the highest load within the service level
//! ```
//!
//! The plain form of every formula is the NumPy reference in `tests/physics`; the two agree.

mod carried;
mod late;
mod steps;
mod traffic;

pub use carried::{Alone, Level, Role};
pub use steps::{Shape, Steps};
pub use traffic::Traffic;

/// Interpolates between points as `numpy.interp` does, flat beyond both ends.
///
/// `xs` must not fall; where several points share an `x` the last one counts.
fn interpolated(x: f64, xs: &[f64], ys: &[f64]) -> f64 {
    let right = xs.partition_point(|&each| each <= x);
    if right == 0 {
        return ys[0];
    }
    if right == xs.len() {
        return ys[right - 1];
    }
    let left = right - 1;
    (ys[right] - ys[left]) / (xs[right] - xs[left]) * (x - xs[left]) + ys[left]
}

/// Returns the running maximum.
fn rising(values: impl Iterator<Item = f64>) -> Vec<f64> {
    values
        .scan(f64::NEG_INFINITY, |most, value| {
            *most = most.max(value);
            Some(*most)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpolation_is_flat_outside_and_exact_at_points() {
        let (xs, ys) = ([1.0, 2.0, 2.0, 4.0], [10.0, 20.0, 30.0, 40.0]);
        for (x, y) in [(0.0, 10.0), (1.5, 15.0), (2.0, 30.0), (3.0, 35.0), (9.0, 40.0)] {
            assert!((interpolated(x, &xs, &ys) - y).abs() < 1e-12, "{x}");
        }
    }

    #[test]
    fn running_maximum_never_falls() {
        assert_eq!(rising([1.0, 3.0, 2.0, 5.0].into_iter()), [1.0, 3.0, 3.0, 5.0]);
    }
}
