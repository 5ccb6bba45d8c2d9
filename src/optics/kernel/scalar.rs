//! The definition: one product after another.

#![expect(clippy::needless_pass_by_value, reason = "an `Out` is given away to be written")]

use super::{Few, Out, PANEL, Rows};

pub(super) fn sum8(x: Rows<'_, u8>, panel: &[i8], out: Out<'_, i32>) {
    for row in 0..x.rows {
        let operands = &x.data[row * x.stride..];
        let mut sums = [0_i32; PANEL];
        for (quad, block) in panel.chunks_exact(4 * PANEL).enumerate() {
            for (column, sum) in sums.iter_mut().enumerate() {
                for k in 0..4 {
                    *sum += i32::from(operands[quad * 4 + k]) * i32::from(block[column * 4 + k]);
                }
            }
        }
        out.data[row * out.ldo..][..PANEL].copy_from_slice(&sums);
    }
}

pub(super) fn sum16(x: Rows<'_, i16>, panel: &[i16], out: Out<'_, i32>) {
    for row in 0..x.rows {
        let operands = &x.data[row * x.stride..];
        let mut sums = [0_i32; PANEL];
        for (pair, block) in panel.chunks_exact(2 * PANEL).enumerate() {
            for (column, sum) in sums.iter_mut().enumerate() {
                for k in 0..2 {
                    *sum += i32::from(operands[pair * 2 + k]) * i32::from(block[column * 2 + k]);
                }
            }
        }
        out.data[row * out.ldo..][..PANEL].copy_from_slice(&sums);
    }
}

pub(super) fn sum_few(few: Few<'_>, out: &mut [i32]) {
    out.fill(0);
    for (&input, &factor) in few.inputs.iter().zip(few.factors) {
        let line = &few.panel[input as usize * PANEL..][..PANEL];
        for (sum, &pixel) in out.iter_mut().zip(line) {
            *sum += i32::from(pixel) * i32::from(factor);
        }
    }
}

/// The product of two f32 is exact in f64, so only the order of the sum matters: k ascending.
#[inline(always)]
pub(super) fn sum_f64(x: Rows<'_, f32>, panel: &[f32], out: Out<'_, f64>) {
    const LANES: usize = 16;
    for row in 0..x.rows {
        let operands = &x.data[row * x.stride..];
        for first in (0..PANEL).step_by(LANES) {
            let mut sums = [0.0_f64; LANES];
            for (line, &operand) in panel.chunks_exact(PANEL).zip(operands) {
                let operand = f64::from(operand);
                let weights: &[f32; LANES] =
                    line[first..first + LANES].try_into().expect("a chunk has LANES elements");
                for lane in 0..LANES {
                    sums[lane] += operand * f64::from(weights[lane]);
                }
            }
            out.data[row * out.ldo + first..][..LANES].copy_from_slice(&sums);
        }
    }
}
