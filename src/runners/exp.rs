//! `exp` for rows of `f32`, in a form the compiler turns into vector code.

/// Returns `e^x` within 2 units in the last place; below −87.3 it returns about 1e-38, not 0.
///
/// # Source
/// Range reduction and polynomial of the Cephes library's `expf`.
#[inline(always)] // it must be vectorised inside its caller's loop
pub(super) fn exp(x: f32) -> f32 {
    /// 1.5·2²³: adding it rounds to an integer, which is then in the low bits.
    const ROUND: f32 = 12_582_912.0;
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let x = x.clamp(-87.3, 88.0);
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let whole = shifted - ROUND;
    let r = (x - whole * LN2_HIGH) - whole * LN2_LOW;
    let mut p = 1.987_569_1e-4;
    p = p * r + 1.398_199_9e-3;
    p = p * r + 8.333_452e-3;
    p = p * r + 4.166_579_6e-2;
    p = p * r + 1.666_666_5e-1;
    p = p * r + 0.5;
    let value = p * r * r + r + 1.0;
    value * f32::from_bits(shifted.to_bits().wrapping_add(127) << 23)
}

#[cfg(test)]
mod tests {
    use super::exp;

    #[test]
    fn exp_agrees_with_the_standard_library() {
        for step in -8_700_i16..=8_700 {
            let x = f32::from(step) * 0.01;
            let want = f64::from(x).exp();
            let relative = (f64::from(exp(x)) - want).abs() / want;
            assert!(relative < 2.5e-7, "exp({x}) is off by {relative}");
        }
    }
}
