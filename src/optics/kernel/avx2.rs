//! AVX2: two 16-column halves of a panel, four rows at a time.
//!
//! 1. `vpmaddubsw` multiplies `u8 × i8` and adds neighbours in `i16`, saturating. Sums stay exact
//!    because `depth` pair sums of the largest operands fit an `i16` (`fold_depth`).
//! 2. Only every `depth` groups are the `i16` sums widened (`vpmaddwd` by ones), so that narrow
//!    masks spend their multipliers on light.
//! 3. `vpmaddwd` takes `i16 × i16` whole: the wide path.

#![expect(clippy::needless_pass_by_value, reason = "an `Out` is given away to be written")]

use std::arch::x86_64::{
    __m256i, _MM_HINT_T1, _mm_prefetch, _mm256_add_epi16, _mm256_add_epi32, _mm256_castsi256_si128,
    _mm256_cvtepi16_epi32, _mm256_extracti128_si256, _mm256_loadu_si256, _mm256_madd_epi16,
    _mm256_maddubs_epi16, _mm256_set1_epi16, _mm256_set1_epi32, _mm256_setzero_si256,
    _mm256_storeu_si256, _mm256_unpackhi_epi8, _mm256_unpacklo_epi8,
};

use super::{Few, Out, PANEL, Rows, Work, lines, scalar};

/// Proof that this machine has AVX2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Avx2(());

#[expect(clippy::unused_self, reason = "the value is the proof that the call is sound")]
impl Avx2 {
    pub(super) fn detect() -> Option<Self> {
        std::arch::is_x86_feature_detected!("avx2").then_some(Self(()))
    }

    pub(super) fn sum8(self, x: Rows<'_, u8>, panel: &[i8], depth: usize, out: Out<'_, i32>) {
        debug_assert!(depth > 0, "Invariant: pair sums fit 16 bits");
        let kernel = if depth > 1 { sum8::<true> } else { sum8::<false> };
        // SAFETY: a value of `Self` exists only where AVX2 was detected.
        unsafe { kernel(x, panel, depth, out) }
    }

    pub(super) fn sum16(self, x: Rows<'_, i16>, panel: &[i16], out: Out<'_, i32>) {
        // SAFETY: a value of `Self` exists only where AVX2 was detected.
        unsafe { sum16(x, panel, out) }
    }

    pub(super) fn fetch(self, data: &[u8]) {
        for line in data.chunks(64) {
            // SAFETY: a prefetch reads nothing; the address is inside the slice.
            unsafe { _mm_prefetch::<_MM_HINT_T1>(line.as_ptr().cast()) };
        }
    }

    pub(super) fn sum_few(self, few: Few<'_>, out: &mut [i32]) {
        // SAFETY: a value of `Self` exists only where AVX2 was detected.
        unsafe { sum_few(few, out) }
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

/// Groups of inputs that are summed before the next rows come: their half of a panel, and the rows'
/// own operands, stay in the first cache.
const BLOCK: usize = 128;

#[target_feature(enable = "avx2")]
fn sum8<const DEEP: bool>(x: Rows<'_, u8>, panel: &[i8], depth: usize, out: Out<'_, i32>) {
    let quads = panel.len() / (4 * PANEL);
    for first in (0..quads.max(1)).step_by(BLOCK) {
        for half in 0..2 {
            let part = Part { first, last: (first + BLOCK).min(quads), half };
            let mut row = 0;
            // Measured: where every product is widened, fewer rows at a time are faster.
            while DEEP && row + 4 <= x.rows {
                rows8::<4, DEEP>(x, row, panel, part, depth, out.ldo, out.data);
                row += 4;
            }
            while !DEEP && row + 2 <= x.rows {
                rows8::<2, DEEP>(x, row, panel, part, depth, out.ldo, out.data);
                row += 2;
            }
            while row < x.rows {
                rows8::<1, DEEP>(x, row, panel, part, depth, out.ldo, out.data);
                row += 1;
            }
        }
    }
}

#[target_feature(enable = "avx2")]
fn sum16(x: Rows<'_, i16>, panel: &[i16], out: Out<'_, i32>) {
    let pairs = panel.len() / (2 * PANEL);
    for first in (0..pairs.max(1)).step_by(2 * BLOCK) {
        for half in 0..2 {
            let part = Part { first, last: (first + 2 * BLOCK).min(pairs), half };
            let mut row = 0;
            while row + 6 <= x.rows {
                rows16::<6>(x, row, panel, part, out.ldo, out.data);
                row += 6;
            }
            while row + 2 <= x.rows {
                rows16::<2>(x, row, panel, part, out.ldo, out.data);
                row += 2;
            }
            while row < x.rows {
                rows16::<1>(x, row, panel, part, out.ldo, out.data);
                row += 1;
            }
        }
    }
}

/// Groups `first..last` of 16 columns of a panel.
#[derive(Debug, Clone, Copy)]
struct Part {
    first: usize,
    last: usize,
    half: usize,
}

#[target_feature(enable = "avx2")]
#[inline]
fn rows8<const ROWS: usize, const DEEP: bool>(
    x: Rows<'_, u8>,
    row: usize,
    panel: &[i8],
    part: Part,
    depth: usize,
    ldo: usize,
    out: &mut [i32],
) {
    let lines: [*const u8; ROWS] = lines(x, row, 4 * part.last);
    let weights = panel[..4 * PANEL * part.last].as_ptr().wrapping_add(part.half * HALF);
    let mut sums: [[__m256i; 2]; ROWS] = started(row, part, ldo, out);
    let mut quad = part.first;
    while quad < part.last {
        let mut partial = [[_mm256_setzero_si256(); 2]; ROWS];
        if DEEP {
            // Not unrolled: the compiler would add in another order and spill.
            let end = (quad + depth).min(part.last);
            while quad < end {
                // SAFETY: the group is below the number of 128-byte groups in the panel and of
                // quads in the lines.
                partial = unsafe { add_quad(partial, &lines, weights, quad) };
                quad += 1;
            }
        } else {
            // SAFETY: as above.
            partial = unsafe { add_quad(partial, &lines, weights, quad) };
            quad += 1;
        }
        sums = widened(sums, partial);
    }
    finished(&sums, row, part, ldo, out);
}

/// Adds the products of group `index` to 16-bit sums.
///
/// # Safety
/// The panel has a group `index`, and every line four operands for it.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn add_quad<const ROWS: usize>(
    mut partial: [[__m256i; 2]; ROWS],
    lines: &[*const u8; ROWS],
    weights: *const i8,
    index: usize,
) -> [[__m256i; 2]; ROWS] {
    // SAFETY: the caller promises the group.
    let [first, second] = unsafe { load_pair(weights.wrapping_add(index * 4 * PANEL)) };
    for r in 0..ROWS {
        // SAFETY: the caller promises the operands.
        let light = unsafe { broadcast(lines[r].wrapping_add(4 * index)) };
        partial[r][0] = _mm256_add_epi16(partial[r][0], _mm256_maddubs_epi16(light, first));
        partial[r][1] = _mm256_add_epi16(partial[r][1], _mm256_maddubs_epi16(light, second));
    }
    partial
}

/// Adds pairs of 16-bit sums to 32-bit sums.
#[target_feature(enable = "avx2")]
#[inline]
fn widened<const ROWS: usize>(
    mut sums: [[__m256i; 2]; ROWS],
    partial: [[__m256i; 2]; ROWS],
) -> [[__m256i; 2]; ROWS] {
    let ones = _mm256_set1_epi16(1);
    for r in 0..ROWS {
        for c in 0..2 {
            sums[r][c] = _mm256_add_epi32(sums[r][c], _mm256_madd_epi16(partial[r][c], ones));
        }
    }
    sums
}

#[target_feature(enable = "avx2")]
#[inline]
fn rows16<const ROWS: usize>(
    x: Rows<'_, i16>,
    row: usize,
    panel: &[i16],
    part: Part,
    ldo: usize,
    out: &mut [i32],
) {
    let lines: [*const u8; ROWS] = lines(x, row, 2 * part.last);
    let start: *const i8 = panel[..2 * PANEL * part.last].as_ptr().cast();
    let weights = start.wrapping_add(part.half * HALF);
    let mut sums: [[__m256i; 2]; ROWS] = started(row, part, ldo, out);
    for pair in part.first..part.last {
        // SAFETY: `pair` is below the number of 128-byte groups in the panel.
        let [first, second] = unsafe { load_pair(weights.wrapping_add(pair * 4 * PANEL)) };
        for r in 0..ROWS {
            // SAFETY: every line has two readable words for each pair.
            let light = unsafe { broadcast(lines[r].wrapping_add(4 * pair)) };
            sums[r][0] = _mm256_add_epi32(sums[r][0], _mm256_madd_epi16(light, first));
            sums[r][1] = _mm256_add_epi32(sums[r][1], _mm256_madd_epi16(light, second));
        }
    }
    finished(&sums, row, part, ldo, out);
}

/// Returns the sums of the groups before `part`.
#[target_feature(enable = "avx2")]
#[inline]
fn started<const ROWS: usize>(
    row: usize,
    part: Part,
    ldo: usize,
    out: &[i32],
) -> [[__m256i; 2]; ROWS] {
    let mut sums = [[_mm256_setzero_si256(); 2]; ROWS];
    if part.first > 0 {
        for (r, pair) in sums.iter_mut().enumerate() {
            let place: &[i32] = &out[(row + r) * ldo + part.half * 16..][..16];
            // SAFETY: the slice is 64 readable bytes.
            *pair = unsafe { load_pair(place.as_ptr().cast()) };
        }
    }
    sums
}

/// Stores the sums up to the end of `part`.
#[target_feature(enable = "avx2")]
#[inline]
fn finished<const ROWS: usize>(
    sums: &[[__m256i; 2]; ROWS],
    row: usize,
    part: Part,
    ldo: usize,
    out: &mut [i32],
) {
    for (r, pair) in sums.iter().enumerate() {
        store(pair, &mut out[(row + r) * ldo + part.half * 16..][..16]);
    }
}

/// Bytes of 16 columns in one group of a panel.
const HALF: usize = 64;

/// Repeats the four bytes at `at` over a register.
///
/// # Safety
/// Four bytes at `at` are readable.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn broadcast(at: *const u8) -> __m256i {
    // SAFETY: the caller promises four readable bytes.
    _mm256_set1_epi32(unsafe { at.cast::<i32>().read_unaligned() })
}

/// Loads 64 bytes.
///
/// # Safety
/// 64 bytes at `at` are readable.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn load_pair(at: *const i8) -> [__m256i; 2] {
    // SAFETY: the caller promises 64 readable bytes.
    let first = unsafe { _mm256_loadu_si256(at.cast()) };
    // SAFETY: as above, the second half of them.
    let second = unsafe { _mm256_loadu_si256(at.wrapping_add(32).cast()) };
    [first, second]
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

/// Two inputs at a time: their lines are interleaved, so that `vpmaddubsw` adds their products.
#[target_feature(enable = "avx2")]
fn sum_few(few: Few<'_>, out: &mut [i32]) {
    let (lines, _) = few.panel.as_chunks::<PANEL>();
    let (pairs, _) = few.inputs.as_chunks::<2>();
    let (factors, _) = few.factors.as_chunks::<2>();
    // Columns 0–7, 16–23, 8–15 and 24–31, as interleaving leaves them.
    let mut sums = [_mm256_setzero_si256(); 4];
    for (pairs, factors) in pairs.chunks(few.depth).zip(factors.chunks(few.depth)) {
        let [mut low, mut high] = [_mm256_setzero_si256(); 2];
        for (&[a, b], &factor) in pairs.iter().zip(factors) {
            let factor = _mm256_set1_epi16(i16::from_ne_bytes(factor.map(i8::cast_unsigned)));
            let [a, b] = [line(&lines[a as usize]), line(&lines[b as usize])];
            let products = _mm256_maddubs_epi16(_mm256_unpacklo_epi8(a, b), factor);
            low = _mm256_add_epi16(low, products);
            let products = _mm256_maddubs_epi16(_mm256_unpackhi_epi8(a, b), factor);
            high = _mm256_add_epi16(high, products);
        }
        let parts = [
            _mm256_castsi256_si128(low),
            _mm256_extracti128_si256::<1>(low),
            _mm256_castsi256_si128(high),
            _mm256_extracti128_si256::<1>(high),
        ];
        for (sum, part) in sums.iter_mut().zip(parts) {
            *sum = _mm256_add_epi32(*sum, _mm256_cvtepi16_epi32(part));
        }
    }
    let [first, third, second, fourth] = sums;
    store(&[first, second], &mut out[..16]);
    store(&[third, fourth], &mut out[16..PANEL]);
}

#[target_feature(enable = "avx2")]
#[inline]
fn line(pixels: &[u8; PANEL]) -> __m256i {
    // SAFETY: the array is 32 readable bytes; the load needs no alignment.
    unsafe { _mm256_loadu_si256(pixels.as_ptr().cast()) }
}
