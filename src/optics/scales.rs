//! What the fully open pixel stands for, and which level a weight is written as.

use crate::optics::convert::nearest_even;
use crate::optics::spec::{Spec, WeightScale};

/// What the fully open pixel stands for, by tile and column.
#[derive(Debug)]
pub(crate) struct Scales {
    per_column: Vec<f64>,
    n: usize,
    pub(crate) levels: Option<f64>,
    k_edges: Vec<usize>,
}

impl Scales {
    pub(crate) fn new(w: &[f32], n: usize, k: usize, spec: &Spec, k_edges: &[usize]) -> Self {
        let peak = |row: &[f32]| row.iter().fold(0.0_f32, |m, v| m.max(v.abs()));
        let matrix = f64::from(peak(w));
        let mut per_column = Vec::with_capacity((k_edges.len() - 1) * n);
        for edge in k_edges.windows(2) {
            let columns = w.chunks_exact(k).map(|row| f64::from(peak(&row[edge[0]..edge[1]])));
            match spec.weight_scale {
                WeightScale::Column => per_column.extend(columns),
                WeightScale::Tile => {
                    // One tile is `outputs` columns wide.
                    let all: Vec<f64> = columns.collect();
                    for part in all.chunks(spec.outputs) {
                        let top = part.iter().copied().fold(0.0, f64::max);
                        per_column.extend(std::iter::repeat_n(top, part.len()));
                    }
                }
                WeightScale::Matrix => per_column.extend(std::iter::repeat_n(matrix, n)),
                WeightScale::Fixed(scale) => per_column.extend(std::iter::repeat_n(scale, n)),
            }
        }
        Self { per_column, n, levels: spec.weight_levels().map(f64::from), k_edges: k_edges.into() }
    }

    pub(crate) fn of(&self, kt: usize, column: usize) -> f64 {
        self.per_column[kt * self.n + column]
    }

    /// The written level of a weight: whole where the mask has levels, else w / scale.
    pub(crate) fn level(&self, value: f32, scale: f64) -> f64 {
        if scale <= 0.0 {
            return 0.0;
        }
        let exact = f64::from(value) / scale;
        match self.levels {
            Some(levels) => nearest_even((exact * levels).clamp(-levels, levels)),
            None => exact,
        }
    }

    /// The largest Σ|level| of any column and tile, in units of full scale.
    pub(crate) fn largest_column_sum(&self, w: &[f32], k: usize) -> f64 {
        let mut largest = 0.0_f64;
        for (kt, edge) in self.k_edges.windows(2).enumerate() {
            for (column, row) in w.chunks_exact(k).enumerate() {
                let sum: f64 = row[edge[0]..edge[1]].iter().map(|v| f64::from(v.abs())).sum();
                let scale = self.of(kt, column);
                // Rounding may add half a level to each weight.
                let rounding = self.levels.map_or(0.0, |l| 0.5 / l) * (edge[1] - edge[0]) as f64;
                if scale > 0.0 {
                    largest = largest.max((sum / scale).min((edge[1] - edge[0]) as f64) + rounding);
                }
            }
        }
        largest
    }
}
