//! Traffic as the closed form sees it: its rate by the half minute and moments of its lengths.

use crate::Error;

/// Rates by bin and moments of the lengths.
#[derive(Debug, Clone, PartialEq)]
pub struct Traffic {
    /// Rate of arrivals over its mean, by bin.
    pub rate_ratio: Vec<f64>,
    /// Rate of prompt tokens over its mean, by bin.
    pub prefill_ratio: Vec<f64>,
    /// Rate of answer tokens over its mean, by bin.
    pub decode_ratio: Vec<f64>,
    /// Prompt tokens to compute, at a few quantiles [tok].
    pub uncached_tok: Vec<f64>,
    /// Share of the requests each of them stands for.
    pub uncached_weight: Vec<f64>,
    /// Mean prompt tokens to compute [tok].
    pub mean_uncached_tok: f64,
    /// Their spread over their mean.
    pub uncached_cv: f64,
    /// Mean prompt [tok].
    pub mean_input_tok: f64,
    /// Mean answer [tok].
    pub mean_output_tok: f64,
    /// Mean query-key pairs of a prompt.
    pub mean_pairs: f64,
    /// Mean context of a sequence that decodes [tok].
    pub context_tok: f64,
    /// Length of a bin [s].
    pub bin_s: f64,
}

impl Traffic {
    /// Checks that the tables agree and that there is something to serve.
    ///
    /// # Errors
    /// [`Error::Shape`] for tables of different lengths, [`Error::Range`] for a mean that is not
    /// above 0.
    pub fn check(&self) -> Result<(), Error> {
        let bins = self.rate_ratio.len();
        for (name, table) in
            [("prefill_ratio", &self.prefill_ratio), ("decode_ratio", &self.decode_ratio)]
        {
            if table.len() != bins || bins == 0 {
                let expected = format!("({},), at least one bin", bins.max(1));
                return Err(Error::shape(name, format!("({},)", table.len()), expected));
            }
        }
        let (given, quantiles) = (self.uncached_weight.len(), self.uncached_tok.len());
        if given != quantiles || quantiles == 0 {
            return Err(Error::shape(
                "uncached_weight",
                format!("({given},)"),
                format!("({},), at least one quantile", quantiles.max(1)),
            ));
        }
        for (name, value) in [
            ("mean_uncached_tok", self.mean_uncached_tok),
            ("mean_output_tok", self.mean_output_tok),
            ("context_tok", self.context_tok),
            ("bin_s", self.bin_s),
        ] {
            if !(value.is_finite() && value > 0.0) {
                return Err(Error::range(name, value, "above 0"));
            }
        }
        Ok(())
    }

    /// Returns the query-key pairs of a prompt with that many tokens to compute.
    pub(super) fn pairs(&self, uncached_tok: f64) -> f64 {
        let behind = self.mean_input_tok / self.mean_uncached_tok - 1.0;
        uncached_tok * uncached_tok * (behind + 0.5)
    }

    /// Returns the prompts by quantile: (tokens to compute, query-key pairs, share of requests).
    pub(super) fn prompts(&self) -> impl Iterator<Item = (f64, f64, f64)> {
        self.uncached_tok
            .iter()
            .zip(&self.uncached_weight)
            .map(|(&tokens, &share)| (tokens, self.pairs(tokens), share))
    }

    /// Returns the spread of a prompt's work over its mean; long prompts' attention widens it.
    ///
    /// Never less than that of the lengths: what a gate shares among short prompts comes in clumps.
    pub(super) fn work_cv(&self, work_s: impl Fn(f64, f64) -> f64) -> f64 {
        let (mut mean, mut square) = (0.0, 0.0);
        for (tokens, pairs, share) in self.prompts() {
            let work = work_s(tokens, pairs);
            mean += work * share;
            square += work * work * share;
        }
        (square / (mean * mean) - 1.0).max(0.0).sqrt().max(self.uncached_cv)
    }
}
