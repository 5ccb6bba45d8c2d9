//! Sums in a fixed order: eight lanes, then the lanes one after another.
//!
//! The order is part of the result's definition, so that every instruction set adds alike.

/// Lanes of a sum.
pub(crate) const LANES: usize = 8;

/// Adds the lanes.
#[inline(always)]
pub(crate) fn folded(lanes: [f32; LANES]) -> f64 {
    lanes.iter().map(|v| f64::from(*v)).sum()
}

/// The value where a weight is below `least`, else zero.
///
/// Written so that the compiler has no branch to make: the difference of two floats is zero or far
/// more than 1e-30.
#[inline(always)]
pub(crate) fn below(weight: f32, least: f32, value: f32) -> f32 {
    let steep = (least - weight) * 1e30;
    let positive = if steep > 0.0 { steep } else { 0.0 };
    value * if positive < 1.0 { positive } else { 1.0 }
}

/// Puts values in lanes; the last ones are padded with zeros.
pub(crate) fn in_lanes(values: &[f32]) -> Vec<[f32; LANES]> {
    let fill = |chunk: &[f32]| {
        let mut lanes = [0.0; LANES];
        lanes[..chunk.len()].copy_from_slice(chunk);
        lanes
    };
    values.chunks(LANES).map(fill).collect()
}

/// Scalar product of two vectors of one length.
#[inline(always)]
pub(crate) fn dot(a: &[f32], b: &[f32]) -> f64 {
    let (a, a_rest) = a.as_chunks::<LANES>();
    let (b, b_rest) = b.as_chunks::<LANES>();
    let count = a.len().min(b.len());
    let (a, b) = (&a[..count], &b[..count]);
    let mut sums = [0.0_f32; LANES];
    for chunk in 0..count {
        for lane in 0..LANES {
            sums[lane] += a[chunk][lane] * b[chunk][lane];
        }
    }
    for (lane, (a, b)) in a_rest.iter().zip(b_rest).enumerate() {
        sums[lane] += a * b;
    }
    folded(sums)
}
