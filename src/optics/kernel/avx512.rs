//! AVX-512 VNNI: a whole panel is two registers, eight rows at a time.
//!
//! `vpdpbusd` adds four `u8 × i8` products to an `i32` without saturation, `vpdpwssd` two
//! `i16 × i16` products, so there is no bit budget below 32 bits to keep.

#![expect(clippy::needless_pass_by_value, reason = "an `Out` is given away to be written")]

use std::arch::x86_64::{
    __m512i, _mm512_dpbusd_epi32, _mm512_dpwssd_epi32, _mm512_loadu_si512, _mm512_set1_epi32,
    _mm512_setzero_si512, _mm512_storeu_si512,
};

use super::avx2::Avx2;
use super::{Out, PANEL, Rows, Work, lines, scalar};

/// Proof that this machine has AVX-512 with VNNI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Avx512(Avx2);

#[expect(clippy::unused_self, reason = "the value is the proof that the call is sound")]
impl Avx512 {
    pub(super) fn detect() -> Option<Self> {
        let has_all = std::arch::is_x86_feature_detected!("avx512f")
            && std::arch::is_x86_feature_detected!("avx512bw")
            && std::arch::is_x86_feature_detected!("avx512dq")
            && std::arch::is_x86_feature_detected!("avx512vl")
            && std::arch::is_x86_feature_detected!("avx512vnni");
        if has_all { Avx2::detect().map(Self) } else { None }
    }

    /// AVX-512 machines have AVX2, too.
    pub(super) fn narrower(self) -> Avx2 {
        self.0
    }

    pub(super) fn sum8(self, x: Rows<'_, u8>, panel: &[i8], out: Out<'_, i32>) {
        // SAFETY: a value of `Self` exists only where the features were detected.
        unsafe { sum8(x, panel, out) }
    }

    pub(super) fn sum16(self, x: Rows<'_, i16>, panel: &[i16], out: Out<'_, i32>) {
        // SAFETY: a value of `Self` exists only where the features were detected.
        unsafe { sum16(x, panel, out) }
    }

    pub(super) fn sum_f64(self, x: Rows<'_, f32>, panel: &[f32], out: Out<'_, f64>) {
        // SAFETY: a value of `Self` exists only where the features were detected.
        unsafe { sum_f64(x, panel, out) }
    }

    #[inline(always)]
    pub(super) fn run<W: Work>(self, work: W) -> W::Output {
        // SAFETY: a value of `Self` exists only where the features were detected.
        unsafe { run(work) }
    }
}

#[target_feature(enable = "avx2,avx512f,avx512bw,avx512dq,avx512vl")]
fn run<W: Work>(work: W) -> W::Output {
    work.call()
}

#[target_feature(enable = "avx2,avx512f,avx512bw,avx512dq,avx512vl")]
fn sum_f64(x: Rows<'_, f32>, panel: &[f32], out: Out<'_, f64>) {
    scalar::sum_f64(x, panel, out);
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn sum8(x: Rows<'_, u8>, panel: &[i8], out: Out<'_, i32>) {
    let mut row = 0;
    while row + 8 <= x.rows {
        rows8::<8>(x, row, panel, out.ldo, out.data);
        row += 8;
    }
    while row < x.rows {
        rows8::<1>(x, row, panel, out.ldo, out.data);
        row += 1;
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn sum16(x: Rows<'_, i16>, panel: &[i16], out: Out<'_, i32>) {
    let mut row = 0;
    while row + 8 <= x.rows {
        rows16::<8>(x, row, panel, out.ldo, out.data);
        row += 8;
    }
    while row < x.rows {
        rows16::<1>(x, row, panel, out.ldo, out.data);
        row += 1;
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
#[inline]
fn rows8<const ROWS: usize>(
    x: Rows<'_, u8>,
    row: usize,
    panel: &[i8],
    ldo: usize,
    out: &mut [i32],
) {
    let quads = panel.len() / (4 * PANEL);
    let lines: [*const u8; ROWS] = lines(x, row, 4 * quads);
    let mut sums = [[_mm512_setzero_si512(); 2]; ROWS];
    for quad in 0..quads {
        // SAFETY: `quad` is below `quads`, the number of 128-byte groups in the panel.
        let [first, second] = unsafe { load_pair(panel.as_ptr().wrapping_add(quad * 4 * PANEL)) };
        for r in 0..ROWS {
            // SAFETY: every line has four readable operands for each quad.
            let light = unsafe { broadcast(lines[r].wrapping_add(4 * quad)) };
            sums[r][0] = _mm512_dpbusd_epi32(sums[r][0], light, first);
            sums[r][1] = _mm512_dpbusd_epi32(sums[r][1], light, second);
        }
    }
    for (r, pair) in sums.iter().enumerate() {
        store(pair, &mut out[(row + r) * ldo..][..PANEL]);
    }
}

#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
#[inline]
fn rows16<const ROWS: usize>(
    x: Rows<'_, i16>,
    row: usize,
    panel: &[i16],
    ldo: usize,
    out: &mut [i32],
) {
    let pairs = panel.len() / (2 * PANEL);
    let lines: [*const u8; ROWS] = lines(x, row, 2 * pairs);
    let weights: *const i8 = panel.as_ptr().cast();
    let mut sums = [[_mm512_setzero_si512(); 2]; ROWS];
    for pair in 0..pairs {
        // SAFETY: `pair` is below `pairs`, the number of 128-byte groups in the panel.
        let [first, second] = unsafe { load_pair(weights.wrapping_add(pair * 4 * PANEL)) };
        for r in 0..ROWS {
            // SAFETY: every line has two readable words for each pair.
            let light = unsafe { broadcast(lines[r].wrapping_add(4 * pair)) };
            sums[r][0] = _mm512_dpwssd_epi32(sums[r][0], light, first);
            sums[r][1] = _mm512_dpwssd_epi32(sums[r][1], light, second);
        }
    }
    for (r, pair) in sums.iter().enumerate() {
        store(pair, &mut out[(row + r) * ldo..][..PANEL]);
    }
}

/// Repeats the four bytes at `at` over a register.
///
/// # Safety
/// Four bytes at `at` are readable.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn broadcast(at: *const u8) -> __m512i {
    // SAFETY: the caller promises four readable bytes.
    _mm512_set1_epi32(unsafe { at.cast::<i32>().read_unaligned() })
}

/// Loads 128 bytes.
///
/// # Safety
/// 128 bytes at `at` are readable.
#[target_feature(enable = "avx512f")]
#[inline]
unsafe fn load_pair(at: *const i8) -> [__m512i; 2] {
    // SAFETY: the caller promises 128 readable bytes.
    let first = unsafe { _mm512_loadu_si512(at.cast()) };
    // SAFETY: as above, the second half of them.
    let second = unsafe { _mm512_loadu_si512(at.wrapping_add(64).cast()) };
    [first, second]
}

#[target_feature(enable = "avx512f")]
#[inline]
fn store(pair: &[__m512i; 2], out: &mut [i32]) {
    let (first, second) = out.split_at_mut(16);
    for (register, place) in pair.iter().zip([first, second]) {
        let place: &mut [i32; 16] = place.try_into().expect("a register is 16 sums");
        // SAFETY: the array is 64 writable bytes; the store needs no alignment.
        unsafe { _mm512_storeu_si512(place.as_mut_ptr().cast(), *register) };
    }
}
