//! Masks in the order the kernels read them: panels of [`PANEL`] columns, a few inputs together.

/// Columns of one panel.
pub const PANEL: usize = 32;

/// A tile of 8-bit mask values: `[panel][input / 4][column][input % 4]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed8 {
    data: Vec<i8>,
    quads: usize,
    x_max: i32,
    w_max: i32,
}

impl Packed8 {
    /// Packs `mask`, `(outputs, inputs)` row by row, for operands up to `x_max`.
    pub fn new(mask: &[i8], inputs: usize, x_max: i32) -> Self {
        let quads = inputs.div_ceil(4);
        let data = packed(mask, inputs, 4, quads);
        let w_max = mask.iter().map(|w| i32::from(*w).abs()).max().unwrap_or(0);
        Self { data, quads, x_max, w_max }
    }

    pub(super) fn panel(&self, index: usize) -> &[i8] {
        let size = self.quads * 4 * PANEL;
        &self.data[index * size..(index + 1) * size]
    }

    /// Groups of four inputs.
    pub fn quads(&self) -> usize {
        self.quads
    }

    /// The largest operand it may meet.
    pub fn x_max(&self) -> i32 {
        self.x_max
    }

    /// The largest magnitude in the mask.
    pub fn w_max(&self) -> i32 {
        self.w_max
    }

    /// Memory of the mask [byte].
    pub fn bytes(&self) -> usize {
        self.data.len()
    }
}

/// A tile of 16-bit mask values: `[panel][input / 2][column][input % 2]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed16 {
    data: Vec<i16>,
    pairs: usize,
}

impl Packed16 {
    /// Packs `mask`, `(outputs, inputs)` row by row.
    pub fn new(mask: &[i16], inputs: usize) -> Self {
        let pairs = inputs.div_ceil(2);
        Self { data: packed(mask, inputs, 2, pairs), pairs }
    }

    pub(super) fn panel(&self, index: usize) -> &[i16] {
        let size = self.pairs * 2 * PANEL;
        &self.data[index * size..(index + 1) * size]
    }

    /// Groups of two inputs.
    pub fn pairs(&self) -> usize {
        self.pairs
    }

    /// Memory of the mask [byte].
    pub fn bytes(&self) -> usize {
        self.data.len() * 2
    }
}

/// A tile of real mask values: `[panel][input][column]`.
#[derive(Debug, Clone, PartialEq)]
pub struct PackedF32 {
    data: Vec<f32>,
    inputs: usize,
}

impl PackedF32 {
    /// Packs `mask`, `(outputs, inputs)` row by row.
    pub fn new(mask: &[f32], inputs: usize) -> Self {
        Self { data: packed(mask, inputs, 1, inputs), inputs }
    }

    pub(super) fn panel(&self, index: usize) -> &[f32] {
        let size = self.inputs * PANEL;
        &self.data[index * size..(index + 1) * size]
    }

    /// Inputs of the tile.
    pub fn inputs(&self) -> usize {
        self.inputs
    }

    /// Memory of the mask [byte].
    pub fn bytes(&self) -> usize {
        self.data.len() * 4
    }
}

fn packed<T: Copy + Default>(mask: &[T], inputs: usize, group: usize, groups: usize) -> Vec<T> {
    let outputs = mask.len().checked_div(inputs).unwrap_or(0);
    let size = groups * group * PANEL;
    let mut data = vec![T::default(); outputs.div_ceil(PANEL) * size];
    for (n, row) in mask.chunks_exact(inputs.max(1)).enumerate() {
        let panel = &mut data[n / PANEL * size..][..size];
        for (k, &value) in row.iter().enumerate() {
            panel[(k / group * PANEL + n % PANEL) * group + k % group] = value;
        }
    }
    data
}
