//! The validated parameters of one optical engine, as the emulator needs them.

use crate::error::Error;
use crate::optics::convert::{AdcLevels, Order, Rounding};
use crate::optics::encode::Encoding;
use crate::optics::tile::TileSplit;

/// What one full-scale step of a scale stands for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum InputScale {
    /// The largest magnitude of the vector inside the tile.
    AbsMax,
    /// A fixed value; larger inputs clip.
    Fixed(f64),
}

/// What the fully open pixel stands for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum WeightScale {
    /// The largest magnitude of the column inside the tile.
    Column,
    /// The largest magnitude of the tile.
    Tile,
    /// The largest magnitude of the matrix.
    Matrix,
    /// A fixed value; larger weights clip when the mask has levels.
    Fixed(f64),
}

/// How wide the converter's range is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AdcRange {
    /// So many standard deviations of the expected sum.
    Sigma(f64),
    /// Fixed, in units of one full-scale source through one fully open pixel.
    Fixed(f64),
}

/// Whether columns share one converter range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangePer {
    /// One range a column and tile.
    Column,
    /// One range a tile.
    Tile,
}

/// How the light that makes the shot noise is summed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variance {
    /// Over groups of four inputs, exact where a vector is too uneven for that.
    Grouped,
    /// Input by input: a second product.
    Exact,
}

/// Noise that every pixel draws anew at every vector.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PixelNoise {
    /// None.
    Off,
    /// Standard deviation as a fraction of the pixel's value.
    Proportional(f64),
    /// Standard deviation as a fraction of full scale; transmission stays non-negative.
    Additive(f64),
}

/// Everything that happens to numbers between the input memory and the accumulator.
///
/// `Default` is the ideal engine: no quantisation, no noise, no error. Light is measured in units
/// of one full-scale source through one fully open pixel.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// Inputs of one tile.
    pub inputs: usize,
    /// Outputs of one tile.
    pub outputs: usize,
    /// How inputs are cut into tiles.
    pub tile_split: TileSplit,
    /// How signs ride on light.
    pub encoding: Encoding,
    /// Resolution of the input converters; `None` is ideal.
    pub activation_bits: Option<u32>,
    /// Full scale of the inputs.
    pub input_scale: InputScale,
    /// Magnitude bits sent a cycle; `None` sends all at once.
    pub input_slice_bits: Option<u32>,
    /// Bits of a signed weight; `None` is continuous.
    pub weight_bits: Option<u32>,
    /// Bits of a pixel: more magnitude bits take several masks. `None`: as many as needed.
    pub mask_bits: Option<u32>,
    /// What the fully open pixel stands for.
    pub weight_scale: WeightScale,
    /// Resolution of the output converters; `None` is ideal.
    pub adc_bits: Option<u32>,
    /// Effective number of bits of the output converters; `None` is `adc_bits`.
    pub adc_enob: Option<f64>,
    /// Range of the output converters.
    pub adc_range: AdcRange,
    /// Whether columns share a range.
    pub adc_range_per: RangePer,
    /// Whether the code −2^(b−1) exists.
    pub adc_levels: AdcLevels,
    /// Clip before or after rounding, in both converters.
    pub order: Order,
    /// What happens to exact ties, in both converters.
    pub rounding: Rounding,
    /// Detected electrons a MAC, on average; `None` is unlimited light.
    pub electrons_per_mac: Option<f64>,
    /// Detected electrons of one unit of light; wins over `electrons_per_mac`.
    pub electrons_full_scale: Option<f64>,
    /// Whether light is counted in photons.
    pub is_shot_noise_on: bool,
    /// Light [electron] below which photons are drawn one by one.
    pub poisson_below: f64,
    /// Receiver noise of one reading [electron].
    pub receiver_noise_electrons: f64,
    /// Receiver noise of one reading, in units of light.
    pub readout_noise: f64,
    /// Relative laser intensity noise of one reading (rms).
    pub rin_rms: f64,
    /// Whether that noise is one laser's or every source has its own.
    pub is_rin_common: bool,
    /// Brightest over darkest pixel; `None` is infinite.
    pub mask_contrast_ratio: Option<f64>,
    /// Transmission a·w² + b·w + c of a written weight.
    pub mask_response_poly: Option<[f64; 3]>,
    /// Exponent of the transmission of a written weight.
    pub mask_gamma: f64,
    /// Static error of a pixel pair, of full scale (rms).
    pub weight_error_sigma: f64,
    /// Share of pixel pairs stuck at a random value.
    pub stuck_pixel_frac: f64,
    /// Share of sources that stay dark.
    pub dead_source_frac: f64,
    /// Share of detectors that stay dark.
    pub dead_detector_frac: f64,
    /// Static relative error of a source (rms).
    pub source_gain_sigma: f64,
    /// Compression of a source at full scale: v(1 − c·v²).
    pub source_compression: f64,
    /// Static relative error of a column (rms).
    pub column_gain_sigma: f64,
    /// Share of one rail's light that appears on the other.
    pub rail_leak: f64,
    /// Static relative error of the ratio of a column's rails (rms).
    pub rail_ratio_sigma: f64,
    /// Static offset of a detector, of the converter's range (rms).
    pub detector_offset_sigma: f64,
    /// Light that leaks from the left and from the right neighbour.
    pub crosstalk: [f64; 2],
    /// Whether what leaks is missing at its origin.
    pub is_crosstalk_conserving: bool,
    /// Light at which one detector saturates; `None` is never.
    pub saturation: Option<f64>,
    /// Loss of mask transmission a token since the last reload.
    pub drift_per_tok: f64,
    /// Tokens between reloads, for drift.
    pub reload_every_tok: u64,
    /// Share of the previous symbol left in a reading.
    pub inter_symbol_frac: f64,
    /// Noise drawn anew by every pixel.
    pub pixel_noise: PixelNoise,
    /// How the light of a reading is summed.
    pub variance: Variance,
    /// Which specimen of the engine: freezes every static error.
    pub engine_seed: u64,
}

impl Default for Spec {
    fn default() -> Self {
        Self {
            inputs: 1024,
            outputs: 1024,
            tile_split: TileSplit::Full,
            encoding: Encoding::FourQuadrantBalanced,
            activation_bits: None,
            input_scale: InputScale::AbsMax,
            input_slice_bits: None,
            weight_bits: None,
            mask_bits: None,
            weight_scale: WeightScale::Column,
            adc_bits: None,
            adc_enob: None,
            adc_range: AdcRange::Sigma(4.0),
            adc_range_per: RangePer::Column,
            adc_levels: AdcLevels::Full,
            order: Order::RoundThenClip,
            rounding: Rounding::NearestEven,
            electrons_per_mac: None,
            electrons_full_scale: None,
            is_shot_noise_on: true,
            poisson_below: 50.0,
            receiver_noise_electrons: 0.0,
            readout_noise: 0.0,
            rin_rms: 0.0,
            is_rin_common: true,
            mask_contrast_ratio: None,
            mask_response_poly: None,
            mask_gamma: 1.0,
            weight_error_sigma: 0.0,
            stuck_pixel_frac: 0.0,
            dead_source_frac: 0.0,
            dead_detector_frac: 0.0,
            source_gain_sigma: 0.0,
            source_compression: 0.0,
            column_gain_sigma: 0.0,
            rail_leak: 0.0,
            rail_ratio_sigma: 0.0,
            detector_offset_sigma: 0.0,
            crosstalk: [0.0; 2],
            is_crosstalk_conserving: false,
            saturation: None,
            drift_per_tok: 0.0,
            reload_every_tok: 1 << 14,
            inter_symbol_frac: 0.0,
            pixel_noise: PixelNoise::Off,
            variance: Variance::Grouped,
            engine_seed: 0,
        }
    }
}

impl Spec {
    /// Returns the specification when every value is one the model is defined for.
    ///
    /// # Errors
    /// [`Error::Range`] naming the first value that is not.
    pub fn validated(self) -> Result<Self, Error> {
        count("inputs", self.inputs, 1, 1 << 15)?;
        count("outputs", self.outputs, 1, 1 << 15)?;
        for (name, bits, high) in [
            ("activation_bits", self.activation_bits, 15),
            ("input_slice_bits", self.input_slice_bits, 14),
            ("weight_bits", self.weight_bits, 16),
            ("mask_bits", self.mask_bits, 15),
            ("adc_bits", self.adc_bits, 16),
        ] {
            let low = if name == "weight_bits" { 2 } else { 1 };
            if let Some(bits) = bits {
                count(name, bits as usize, low, high)?;
            }
        }
        self.check_light()?;
        self.check_errors()?;
        if self.input_slice_bits.is_some() && self.activation_bits.is_none() {
            return Err(Error::range(
                "input_slice_bits",
                "set",
                "None while activation_bits is None",
            ));
        }
        if self.adc_levels == AdcLevels::Symmetric && self.adc_bits == Some(1) {
            return Err(Error::range("adc_bits", 1, "2 to 16 with symmetric levels"));
        }
        if self.encoding.is_offset() && self.input_slice_bits.is_some() {
            return Err(Error::range("input_slice_bits", "set", "None with an offset encoding"));
        }
        Ok(self)
    }

    fn check_light(&self) -> Result<(), Error> {
        if let InputScale::Fixed(scale) = self.input_scale {
            real("input_scale", scale, f64::MIN_POSITIVE, 1e30)?;
        }
        if let WeightScale::Fixed(scale) = self.weight_scale {
            real("weight_scale", scale, f64::MIN_POSITIVE, 1e30)?;
        }
        match self.adc_range {
            AdcRange::Sigma(sigma) => real("adc_range_sigma", sigma, 0.1, 1e3)?,
            AdcRange::Fixed(range) => real("adc_range", range, 1e-9, 1e9)?,
        }
        for (name, value, low, high) in [
            ("electrons_per_mac", self.electrons_per_mac, 1e-9, 1e15),
            ("electrons_full_scale", self.electrons_full_scale, 1e-9, 1e15),
            ("mask_contrast_ratio", self.mask_contrast_ratio, 1.001, 1e12),
            ("saturation", self.saturation, 1e-9, 1e9),
            ("adc_enob", self.adc_enob, 0.5, 16.0),
        ] {
            if let Some(value) = value {
                real(name, value, low, high)?;
            }
        }
        if let (Some(bits), Some(enob)) = (self.adc_bits, self.adc_enob)
            && enob > f64::from(bits)
        {
            return Err(Error::range("adc_enob", enob, format!("at most adc_bits, {bits}")));
        }
        Ok(())
    }

    fn check_errors(&self) -> Result<(), Error> {
        for (name, value, high) in [
            ("poisson_below", self.poisson_below, 300.0),
            ("receiver_noise_electrons", self.receiver_noise_electrons, 1e9),
            ("readout_noise", self.readout_noise, 1e6),
            ("rin_rms", self.rin_rms, 1.0),
            ("weight_error_sigma", self.weight_error_sigma, 1.0),
            ("stuck_pixel_frac", self.stuck_pixel_frac, 1.0),
            ("dead_source_frac", self.dead_source_frac, 1.0),
            ("dead_detector_frac", self.dead_detector_frac, 1.0),
            ("source_gain_sigma", self.source_gain_sigma, 1.0),
            ("column_gain_sigma", self.column_gain_sigma, 1.0),
            ("rail_leak", self.rail_leak, 0.5),
            ("rail_ratio_sigma", self.rail_ratio_sigma, 1.0),
            ("detector_offset_sigma", self.detector_offset_sigma, 1.0),
            ("crosstalk", self.crosstalk[0], 0.5),
            ("crosstalk", self.crosstalk[1], 0.5),
            ("drift_per_tok", self.drift_per_tok, 1.0),
            ("inter_symbol_frac", self.inter_symbol_frac, 0.99),
        ] {
            real(name, value, 0.0, high)?;
        }
        real("source_compression", self.source_compression, -0.3, 0.3)?;
        real("mask_gamma", self.mask_gamma, 0.05, 20.0)?;
        if self.reload_every_tok == 0 {
            return Err(Error::range("reload_every_tok", 0, "1 or more"));
        }
        if let Some([a, b, c]) = self.mask_response_poly {
            let open = a + b + c;
            if ![a, b, c].iter().all(|v| v.is_finite()) || c < 0.0 || open <= c {
                let given = format!("({a}, {b}, {c})");
                return Err(Error::range("mask_response_poly", given, "c ≥ 0 and a + b > 0"));
            }
        }
        if let PixelNoise::Proportional(s) | PixelNoise::Additive(s) = self.pixel_noise {
            real("pixel_noise", s, 0.0, 1.0)?;
        }
        Ok(())
    }

    /// Magnitude levels of an input, zero not counted; `None` is continuous.
    pub fn input_levels(&self) -> Option<i32> {
        self.activation_bits.map(|bits| {
            if self.encoding.is_unsigned() {
                (1 << bits) - 1
            } else {
                ((1 << (bits - 1)) - 1).max(1)
            }
        })
    }

    /// Magnitude levels of a weight, zero not counted; `None` is continuous.
    pub fn weight_levels(&self) -> Option<i32> {
        self.weight_bits.map(|bits| (1 << (bits - 1)) - 1)
    }
}

fn count(name: &str, given: usize, low: usize, high: usize) -> Result<(), Error> {
    if (low..=high).contains(&given) {
        return Ok(());
    }
    Err(Error::range(name, given, format!("{low} to {high}")))
}

fn real(name: &str, given: f64, low: f64, high: f64) -> Result<(), Error> {
    if given >= low && given <= high {
        return Ok(());
    }
    Err(Error::range(name, given, format!("{low:e} to {high:e}")))
}
