//! The lens: sums of light over the inputs of a tile, as exact integers or in f64.
//!
//! # Contract
//! A tile's mask is packed in panels of [`PANEL`] columns, padded with zeros. `x` holds `rows` rows
//! of `stride` elements. Every function writes `out[row·ldo + column] = Σ_k x[row,k]·w[k,column]`
//! for all rows and the panel's columns. Integer sums are exact, so all instruction sets agree bit
//! for bit whatever their order; the f64 sum runs over k in order in every one.
//!
//! | file | runs on | how |
//! |---|---|---|
//! | `scalar.rs` | everything | the definition |
//! | `avx2.rs` | x86-64 with AVX2 | `vpmaddubsw` in int16, folded as late as the bit budget allows |
//! | `avx512.rs` | x86-64 with AVX-512 VNNI | `vpdpbusd`, `vpdpwssd` |
//!
//! A value of a kernel type ([`avx2::Avx2`], …) is the proof that the machine can run it. The
//! place of NEON is a third such file.

pub mod pack;
mod scalar;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;

use crate::error::Error;
pub use pack::{PANEL, Packed8, Packed16, PackedF32};

/// An instruction set this machine has. Only [`Isa::detect`] and [`Isa::parse`] make one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Isa(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Scalar,
    #[cfg(target_arch = "x86_64")]
    Avx2(avx2::Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(avx512::Avx512),
}

impl Isa {
    /// Returns every instruction set of this machine, the definition first, the best last.
    pub fn available() -> Vec<Self> {
        #[cfg_attr(not(target_arch = "x86_64"), expect(unused_mut, reason = "only the definition"))]
        let mut all = vec![Self(Kind::Scalar)];
        #[cfg(target_arch = "x86_64")]
        {
            all.extend(avx2::Avx2::detect().map(|proof| Self(Kind::Avx2(proof))));
            all.extend(avx512::Avx512::detect().map(|proof| Self(Kind::Avx512(proof))));
        }
        all
    }

    /// Returns the best instruction set, or the one that `FIRSTLIGHT_ISA` asks for.
    ///
    /// # Errors
    /// [`Error::Range`] when the variable names one this machine does not have.
    pub fn detect() -> Result<Self, Error> {
        match std::env::var("FIRSTLIGHT_ISA") {
            Ok(name) if !name.is_empty() => Self::parse(&name),
            _ => Ok(Self::available().pop().unwrap_or(Self(Kind::Scalar))),
        }
    }

    /// Returns the instruction set called `name`.
    ///
    /// # Errors
    /// [`Error::Range`] when this machine does not have it.
    pub fn parse(name: &str) -> Result<Self, Error> {
        let all = Self::available();
        all.iter().find(|isa| isa.name() == name).copied().ok_or_else(|| {
            let names: Vec<_> = all.iter().map(|isa| isa.name()).collect();
            Error::range("FIRSTLIGHT_ISA", name, format!("on this machine {}", names.join(", ")))
        })
    }

    /// Returns the name that `FIRSTLIGHT_ISA` takes.
    pub fn name(self) -> &'static str {
        match self.0 {
            Kind::Scalar => "scalar",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(_) => "avx2",
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(_) => "avx512",
        }
    }

    /// Tells whether 8-bit products up to `x_max · w_max` can be summed without the wide path.
    pub fn has_room8(self, x_max: i32, w_max: i32) -> bool {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(_) => fold_depth(x_max, w_max) > 0,
            _ => x_max <= 255 && w_max <= 127,
        }
    }

    /// Sums `u8 × i8` products of one panel.
    ///
    /// # Panics
    /// In debug builds, when a slice is shorter than the contract says.
    pub fn sum8(self, x: Rows<'_, u8>, mask: &Packed8, panel: usize, out: Out<'_, i32>) {
        debug_assert!(x.fits() && out.fits(x.rows) && x.stride >= mask.quads() * 4);
        match self.0 {
            Kind::Scalar => scalar::sum8(x, mask.panel(panel), out),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(isa) => {
                isa.sum8(x, mask.panel(panel), fold_depth(mask.x_max(), mask.w_max()), out);
            }
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(isa) => isa.sum8(x, mask.panel(panel), out),
        }
    }

    /// Sums `i16 × i16` products of one panel; the caller guarantees that no sum leaves `i32`.
    ///
    /// # Panics
    /// In debug builds, when a slice is shorter than the contract says.
    pub fn sum16(self, x: Rows<'_, i16>, mask: &Packed16, panel: usize, out: Out<'_, i32>) {
        debug_assert!(x.fits() && out.fits(x.rows) && x.stride >= mask.pairs() * 2);
        match self.0 {
            Kind::Scalar => scalar::sum16(x, mask.panel(panel), out),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(isa) => isa.sum16(x, mask.panel(panel), out),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(isa) => isa.sum16(x, mask.panel(panel), out),
        }
    }

    /// Sums `f32 × f32` products of one panel in f64, in order of k.
    ///
    /// # Panics
    /// In debug builds, when a slice is shorter than the contract says.
    pub fn sum_f64(self, x: Rows<'_, f32>, mask: &PackedF32, panel: usize, out: Out<'_, f64>) {
        debug_assert!(x.fits() && out.fits(x.rows) && x.stride >= mask.inputs());
        match self.0 {
            Kind::Scalar => scalar::sum_f64(x, mask.panel(panel), out),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(isa) => isa.sum_f64(x, mask.panel(panel), out),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(isa) => isa.sum_f64(x, mask.panel(panel), out),
        }
    }

    /// Sums `u8 × i8` products of a few inputs of one panel into `out[..PANEL]`.
    ///
    /// # Panics
    /// When an input is not the panel's, or in debug builds when the inputs are no pairs.
    pub(crate) fn sum_few(self, few: Few<'_>, out: &mut [i32]) {
        debug_assert!(few.inputs.len().is_multiple_of(2) && few.depth > 0);
        debug_assert_eq!(few.inputs.len(), few.factors.len());
        match self.0 {
            Kind::Scalar => scalar::sum_few(few, out),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(isa) => isa.sum_few(few, out),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(isa) => isa.narrower().sum_few(few, out),
        }
    }

    /// Asks the memory for data that will be read soon, in no order.
    pub(crate) fn fetch(self, data: &[u8]) {
        match self.0 {
            Kind::Scalar => {}
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(isa) => isa.fetch(data),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(isa) => isa.narrower().fetch(data),
        }
    }

    /// Runs `work` compiled for this instruction set. The arithmetic is IEEE and stays the same;
    /// only the width of the registers changes.
    #[inline(always)]
    pub fn run<W: Work>(self, work: W) -> W::Output {
        match self.0 {
            Kind::Scalar => work.call(),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx2(isa) => isa.run(work),
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(isa) => isa.run(work),
        }
    }
}

impl Isa {
    /// Runs `work` in registers of eight at most, where wider ones were measured to be slower.
    #[inline(always)]
    pub(crate) fn run_in_eights<W: Work>(self, work: W) -> W::Output {
        match self.0 {
            #[cfg(target_arch = "x86_64")]
            Kind::Avx512(isa) => isa.narrower().run(work),
            _ => self.run(work),
        }
    }
}

/// A loop over arrays that [`Isa::run`] compiles once for each instruction set.
///
/// `call` must be `#[inline(always)]`, or it keeps the baseline's registers.
pub trait Work {
    /// What it returns.
    type Output;
    /// Does it.
    fn call(self) -> Self::Output;
}

/// Rows of operands: `rows` times `stride` elements.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a, T> {
    /// The elements, row after row.
    pub data: &'a [T],
    /// Distance between rows.
    pub stride: usize,
    /// How many rows are summed.
    pub rows: usize,
}

impl<T> Rows<'_, T> {
    fn fits(&self) -> bool {
        self.data.len() >= self.rows * self.stride
    }
}

/// Where the sums go: columns `0..PANEL` of every row, rows `ldo` apart.
#[derive(Debug)]
pub struct Out<'a, T> {
    /// The sums, starting at the panel's first column.
    pub data: &'a mut [T],
    /// Distance between rows.
    pub ldo: usize,
}

impl<T> Out<'_, T> {
    fn fits(&self, rows: usize) -> bool {
        rows == 0 || self.data.len() >= (rows - 1) * self.ldo + PANEL
    }
}

/// A few inputs of a panel of light, `[input][column]`, and a factor for each.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Few<'a> {
    /// Pixels of all inputs, 0 to 127.
    pub(crate) panel: &'a [u8],
    /// Which inputs: an even number.
    pub(crate) inputs: &'a [u32],
    /// What each is multiplied by.
    pub(crate) factors: &'a [i8],
    /// How many sums of two products fit an `i16` together.
    pub(crate) depth: usize,
}

/// How many pair sums of `u8 × i8` products fit an `i16`: 0 when not even one does.
fn fold_depth(x_max: i32, w_max: i32) -> usize {
    let pair = 2 * x_max * w_max.max(1);
    match 32_767 / pair.max(1) {
        0 => 0,
        1 => 1,
        2..=3 => 2,
        4..=7 => 4,
        _ => 8,
    }
}

/// Returns where `ROWS` rows of at least `length` elements start.
#[cfg(target_arch = "x86_64")]
#[inline]
fn lines<T: Copy, const ROWS: usize>(
    x: Rows<'_, T>,
    row: usize,
    length: usize,
) -> [*const u8; ROWS] {
    let mut starts = [std::ptr::null(); ROWS];
    for (r, start) in starts.iter_mut().enumerate() {
        *start = x.data[(row + r) * x.stride..][..length].as_ptr().cast();
    }
    starts
}
