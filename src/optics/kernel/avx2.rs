//! AVX2: two 16-column halves of a panel, four rows at a time.
//!
//! 1. `vpmaddubsw` multiplies `u8 × i8` and adds neighbours in `i16`, saturating. Sums stay exact
//!    because `depth` pair sums of the largest operands fit an `i16` (`fold_depth`).
//! 2. Only every `depth` groups are the `i16` sums widened (`vpmaddwd` by ones), so that narrow
//!    masks spend their multipliers on light.
//! 3. `vpmaddwd` takes `i16 × i16` whole: the wide path.

use std::arch::x86_64::{
    __m256i, _mm256_add_epi16, _mm256_add_epi32, _mm256_loadu_si256, _mm256_madd_epi16,
    _mm256_maddubs_epi16, _mm256_set1_epi16, _mm256_set1_epi32, _mm256_setzero_si256,
    _mm256_storeu_si256,
};

use super::{Out, PANEL, Rows, Work, scalar};

/// Proof that this machine has AVX2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Avx2(());

impl Avx2 {
    pub(super) fn detect() -> Option<Self> {
        std::arch::is_x86_feature_detected!("avx2").then_some(Self(()))
    }

    pub(super) fn sum8(self, x: Rows<'_, u8>, panel: &[i8], depth: usize, out: Out<'_, i32>) {
        debug_assert!(depth > 0, "Invariant: pair sums fit 16 bits");
        // SAFETY: a value of `Self` exists only where AVX2 was detected.
        unsafe {
            match depth {
                8 => sum8::<8>(x, panel, out),
                4 => sum8::<4>(x, panel, out),
                2 => sum8::<2>(x, panel, out),
                _ => sum8::<1>(x, panel, out),
            }
        }
    }

    pub(super) fn sum16(self, x: Rows<'_, i16>, panel: &[i16], out: Out<'_, i32>) {
        // SAFETY: a value of `Self` exists only where AVX2 was detected.
        unsafe { sum16(x, panel, out) }
    }

    pub(super) fn sum_f64(self, x: Rows<'_, f32>, panel: &[f32], out: Out<'_, f64>) {
        // SAFETY: a value of `Self` exists only where AVX2 was detected.
        unsafe { sum_f64(x, panel, out) }
    }

    #[inline(always)]
    pub(super) fn run<W: Work>(self, work: W) -> W::Output {
        // SAFETY: a value of `Self` exists only where AVX2 was detected.
        unsafe { run(work) }
    }
}

#[target_feature(enable = "avx2")]
fn run<W: Work>(work: W) -> W::Output {
    work.call()
}

#[target_feature(enable = "avx2")]
fn sum_f64(x: Rows<'_, f32>, panel: &[f32], out: Out<'_, f64>) {
    scalar::sum_f64(x, panel, out);
}

#[target_feature(enable = "avx2")]
fn sum8<const DEPTH: usize>(x: Rows<'_, u8>, panel: &[i8], out: Out<'_, i32>) {
    let mut row = 0;
    while row + 4 <= x.rows {
        for half in 0..2 {
            rows8::<4, DEPTH>(x, row, panel, half, out.ldo, out.data);
        }
        row += 4;
    }
    while row < x.rows {
        for half in 0..2 {
            rows8::<1, DEPTH>(x, row, panel, half, out.ldo, out.data);
        }
        row += 1;
    }
}

#[target_feature(enable = "avx2")]
fn sum16(x: Rows<'_, i16>, panel: &[i16], out: Out<'_, i32>) {
    let mut row = 0;
    while row + 4 <= x.rows {
        for half in 0..2 {
            rows16::<4>(x, row, panel, half, out.ldo, out.data);
        }
        row += 4;
    }
    while row < x.rows {
        for half in 0..2 {
            rows16::<1>(x, row, panel, half, out.ldo, out.data);
        }
        row += 1;
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn rows8<const ROWS: usize, const DEPTH: usize>(
    x: Rows<'_, u8>,
    row: usize,
    panel: &[i8],
    half: usize,
    ldo: usize,
    out: &mut [i32],
) {
    let quads = panel.len() / (4 * PANEL);
    let mut sums = [[_mm256_setzero_si256(); 2]; ROWS];
    let lines: [&[u8]; ROWS] =
        std::array::from_fn(|r| &x.data[(row + r) * x.stride..][..4 * quads]);
    let ones = _mm256_set1_epi16(1);
    let mut quad = 0;
    while quad < quads {
        let end = (quad + DEPTH).min(quads);
        let mut partial = [[_mm256_setzero_si256(); 2]; ROWS];
        while quad < end {
            let weights = &panel[quad * 4 * PANEL + half * 64..][..64];
            let [first, second] = [load(&weights[..32]), load(&weights[32..])];
            for r in 0..ROWS {
                let four: [u8; 4] =
                    lines[r][4 * quad..][..4].try_into().expect("four operands make a quad");
                let light = _mm256_set1_epi32(i32::from_le_bytes(four));
                partial[r][0] = _mm256_add_epi16(partial[r][0], _mm256_maddubs_epi16(light, first));
                partial[r][1] =
                    _mm256_add_epi16(partial[r][1], _mm256_maddubs_epi16(light, second));
            }
            quad += 1;
        }
        for r in 0..ROWS {
            for c in 0..2 {
                sums[r][c] = _mm256_add_epi32(sums[r][c], _mm256_madd_epi16(partial[r][c], ones));
            }
        }
    }
    for (r, pair) in sums.iter().enumerate() {
        store(pair, &mut out[(row + r) * ldo + half * 16..][..16]);
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn rows16<const ROWS: usize>(
    x: Rows<'_, i16>,
    row: usize,
    panel: &[i16],
    half: usize,
    ldo: usize,
    out: &mut [i32],
) {
    let pairs = panel.len() / (2 * PANEL);
    let mut sums = [[_mm256_setzero_si256(); 2]; ROWS];
    let lines: [&[i16]; ROWS] =
        std::array::from_fn(|r| &x.data[(row + r) * x.stride..][..2 * pairs]);
    for pair in 0..pairs {
        let weights = &panel[pair * 2 * PANEL + half * 32..][..32];
        let [first, second] = [load16(&weights[..16]), load16(&weights[16..])];
        for r in 0..ROWS {
            let low = u32::from(lines[r][2 * pair].cast_unsigned());
            let high = u32::from(lines[r][2 * pair + 1].cast_unsigned());
            let light = _mm256_set1_epi32((low | high << 16).cast_signed());
            sums[r][0] = _mm256_add_epi32(sums[r][0], _mm256_madd_epi16(light, first));
            sums[r][1] = _mm256_add_epi32(sums[r][1], _mm256_madd_epi16(light, second));
        }
    }
    for (r, pair) in sums.iter().enumerate() {
        store(pair, &mut out[(row + r) * ldo + half * 16..][..16]);
    }
}

#[target_feature(enable = "avx2")]
#[inline]
fn load(bytes: &[i8]) -> __m256i {
    let bytes: &[i8; 32] = bytes.try_into().expect("a register is 32 bytes");
    // SAFETY: the array is 32 readable bytes; the load needs no alignment.
    unsafe { _mm256_loadu_si256(bytes.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn load16(words: &[i16]) -> __m256i {
    let words: &[i16; 16] = words.try_into().expect("a register is 16 words");
    // SAFETY: the array is 32 readable bytes; the load needs no alignment.
    unsafe { _mm256_loadu_si256(words.as_ptr().cast()) }
}

#[target_feature(enable = "avx2")]
#[inline]
fn store(pair: &[__m256i; 2], out: &mut [i32]) {
    let (first, second) = out.split_at_mut(8);
    for (register, place) in pair.iter().zip([first, second]) {
        let place: &mut [i32; 8] = place.try_into().expect("a register is 8 sums");
        // SAFETY: the array is 32 writable bytes; the store needs no alignment.
        unsafe { _mm256_storeu_si256(place.as_mut_ptr().cast(), *register) };
    }
}
