//! Packed GGUF blocks to `f32`, in the operation order of the `gguf` package: bit for bit its values.

use rayon::prelude::*;

use crate::error::Error;

/// A storage format of GGUF tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// IEEE single precision.
    F32,
    /// IEEE half precision.
    F16,
    /// The upper half of a single.
    Bf16,
    /// 32 weights: half scale, 4-bit codes around 8.
    Q4_0,
    /// 32 weights: half scale, half offset, 4-bit codes.
    Q4_1,
    /// 32 weights: half scale, 8-bit signed codes.
    Q8_0,
    /// 256 weights in 8 groups: two half super-scales, 6-bit scales and offsets, 4-bit codes.
    Q4K,
    /// 256 weights in 16 groups: half super-scale, 8-bit scales, 6-bit codes around 32.
    Q6K,
}

impl Format {
    /// Every format with the name GGUF gives it.
    pub const ALL: [(&str, Self); 8] = [
        ("F32", Self::F32),
        ("F16", Self::F16),
        ("BF16", Self::Bf16),
        ("Q4_0", Self::Q4_0),
        ("Q4_1", Self::Q4_1),
        ("Q8_0", Self::Q8_0),
        ("Q4_K", Self::Q4K),
        ("Q6_K", Self::Q6K),
    ];

    /// Returns the format of that name.
    ///
    /// # Errors
    /// [`Error::Range`] when there is none.
    pub fn named(name: &str) -> Result<Self, Error> {
        let found = Self::ALL.iter().find(|(known, _)| *known == name);
        found.map(|(_, format)| *format).ok_or_else(|| {
            Error::range("format", name, Self::ALL.map(|(known, _)| known).join(", "))
        })
    }

    /// Weights and bytes of one block.
    pub const fn block(self) -> (usize, usize) {
        match self {
            Self::F32 => (1, 4),
            Self::F16 | Self::Bf16 => (1, 2),
            Self::Q4_0 => (32, 18),
            Self::Q4_1 => (32, 20),
            Self::Q8_0 => (32, 34),
            Self::Q4K => (256, 144),
            Self::Q6K => (256, 210),
        }
    }

    /// The function that unpacks one block.
    fn unpack(self) -> fn(&[u8], &mut [f32]) {
        match self {
            Self::F32 => f32_block,
            Self::F16 => |bytes, out| out[0] = half(bytes, 0),
            Self::Bf16 => bf16_block,
            Self::Q4_0 => q4_0_block,
            Self::Q4_1 => q4_1_block,
            Self::Q8_0 => q8_0_block,
            Self::Q4K => q4_k_block,
            Self::Q6K => q6_k_block,
        }
    }
}

/// Returns the half-precision number at `bytes[at..at + 2]`, exactly.
fn half(bytes: &[u8], at: usize) -> f32 {
    let bits = u32::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let (sign, exponent, fraction) = ((bits & 0x8000) << 16, (bits >> 10) & 0x1f, bits & 0x3ff);
    match exponent {
        // Subnormal: the fraction counts units of 2^-24.
        0 => f32::from_bits(sign | (fraction as f32 * 2.0_f32.powi(-24)).to_bits()),
        31 => f32::from_bits(sign | 0x7f80_0000 | (fraction << 13)),
        _ => f32::from_bits(sign | ((exponent + 112) << 23) | (fraction << 13)),
    }
}

fn f32_block(bytes: &[u8], out: &mut [f32]) {
    out[0] = f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
}

fn bf16_block(bytes: &[u8], out: &mut [f32]) {
    out[0] = f32::from_bits(u32::from(u16::from_le_bytes([bytes[0], bytes[1]])) << 16);
}

fn q4_0_block(bytes: &[u8], out: &mut [f32]) {
    let scale = half(bytes, 0);
    let (low, high) = out.split_at_mut(16);
    for ((code, low), high) in bytes[2..].iter().zip(low).zip(high) {
        *low = scale * (f32::from(code & 15) - 8.0);
        *high = scale * (f32::from(code >> 4) - 8.0);
    }
}

fn q4_1_block(bytes: &[u8], out: &mut [f32]) {
    let (scale, offset) = (half(bytes, 0), half(bytes, 2));
    let (low, high) = out.split_at_mut(16);
    for ((code, low), high) in bytes[4..].iter().zip(low).zip(high) {
        *low = scale * f32::from(code & 15) + offset;
        *high = scale * f32::from(code >> 4) + offset;
    }
}

fn q8_0_block(bytes: &[u8], out: &mut [f32]) {
    let scale = half(bytes, 0);
    for (code, out) in bytes[2..].iter().zip(out) {
        *out = f32::from(code.cast_signed()) * scale;
    }
}

/// Returns the 6-bit scale and offset of sub-block `group` of a `Q4_K` block.
fn q4_k_scale(packed: &[u8], group: usize) -> (u8, u8) {
    if group < 4 {
        return (packed[group] & 63, packed[group + 4] & 63);
    }
    let rest = packed[group + 4];
    ((rest & 15) | ((packed[group - 4] >> 6) << 4), (rest >> 4) | ((packed[group] >> 6) << 4))
}

fn q4_k_block(bytes: &[u8], out: &mut [f32]) {
    let (scale, offset) = (half(bytes, 0), half(bytes, 2));
    let (packed, codes) = (&bytes[4..16], &bytes[16..144]);
    for (group, out) in out.chunks_exact_mut(32).enumerate() {
        let (group_scale, group_offset) = q4_k_scale(packed, group);
        let d = scale * f32::from(group_scale);
        let m = offset * f32::from(group_offset);
        let shift = (group % 2) * 4;
        for (code, out) in codes[group / 2 * 32..][..32].iter().zip(out) {
            *out = d * f32::from((code >> shift) & 15) - m;
        }
    }
}

fn q6_k_block(bytes: &[u8], out: &mut [f32]) {
    let (low, high, scales) = (&bytes[..128], &bytes[128..192], &bytes[192..208]);
    let scale = half(bytes, 208);
    for (index, out) in out.iter_mut().enumerate() {
        let (part, lane) = (index / 128, index % 128);
        let (quarter, column) = (lane / 32, lane % 32);
        let nibble = (low[part * 64 + (quarter % 2) * 32 + column] >> (quarter / 2 * 4)) & 15;
        let pair = (high[part * 32 + column] >> (quarter * 2)) & 3;
        let code = f32::from(nibble | (pair << 4)) - 32.0;
        *out = scale * f32::from(scales[index / 16].cast_signed()) * code;
    }
}

/// Unpacks `bytes` into `out` and returns how many weights are not finite.
///
/// # Errors
/// [`Error::Shape`] when `out` is no whole number of blocks or `bytes` has another number of them.
pub fn dequantize(bytes: &[u8], format: Format, out: &mut [f32]) -> Result<usize, Error> {
    /// Weights a thread takes at a time; a multiple of every block length.
    const GRAIN: usize = 1 << 16;
    let (weights, size) = format.block();
    if !out.len().is_multiple_of(weights) || bytes.len() != out.len() / weights * size {
        let expected =
            format!("{} (blocks of {size} for {weights} weights)", out.len() / weights * size);
        return Err(Error::shape("bytes", bytes.len(), expected));
    }
    let unpack = format.unpack();
    let broken = out
        .par_chunks_mut(GRAIN)
        .zip(bytes.par_chunks(GRAIN / weights * size))
        .map(|(out, bytes)| {
            for (out, block) in out.chunks_exact_mut(weights).zip(bytes.chunks_exact(size)) {
                unpack(block, out);
            }
            out.iter().filter(|value| !value.is_finite()).count()
        })
        .sum();
    Ok(broken)
}

#[cfg(test)]
mod tests {
    use super::{Format, dequantize, half};

    #[test]
    fn halves_are_exact_over_the_whole_range() {
        for (bits, want) in [
            (0x0000_u16, 0.0_f32),
            (0x0001, 5.960_464_5e-8),
            (0x03ff, 6.097_555e-5),
            (0x0400, 6.103_515_6e-5),
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x7bff, 65_504.0),
            (0x7c00, f32::INFINITY),
        ] {
            assert_eq!(half(&bits.to_le_bytes(), 0).to_bits(), want.to_bits());
        }
        assert!(half(&0x7e00_u16.to_le_bytes(), 0).is_nan());
    }

    #[test]
    fn low_nibbles_are_the_first_half_of_a_block() {
        let mut block = vec![0x00, 0x3c, 0x00, 0x40];
        block.extend([0x51; 16]);
        let mut out = [0.0; 32];
        assert_eq!(dequantize(&block, Format::Q4_1, &mut out), Ok(0));
        assert_eq!(out[0].to_bits(), 3.0_f32.to_bits());
        assert_eq!(out[16].to_bits(), 7.0_f32.to_bits());
    }

    #[test]
    fn weights_that_are_not_finite_are_counted() {
        let bytes: Vec<u8> =
            [1.0_f32, f32::NAN, f32::INFINITY].iter().flat_map(|v| v.to_le_bytes()).collect();
        assert_eq!(dequantize(&bytes, Format::F32, &mut [0.0; 3]), Ok(2));
    }

    #[test]
    fn a_cut_block_is_refused() {
        assert!(dequantize(&[0; 17], Format::Q4_0, &mut [0.0; 32]).is_err());
        assert!(dequantize(&[0; 18], Format::Q4_0, &mut [0.0; 31]).is_err());
        assert!(Format::named("Q3_K").is_err());
    }
}
