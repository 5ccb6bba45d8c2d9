//! One error type for the whole crate: what was wrong, what was given, what is allowed.

/// Why a call was refused.
///
/// Every variant is the caller's fault; the crate's own mistakes are `debug_assert!`s.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value lies outside what the model is defined for.
    #[error("{name} is {given}; allowed: {allowed}")]
    Range {
        /// The parameter, spelt as the caller knows it.
        name: String,
        /// The value that was given.
        given: String,
        /// What would have been accepted.
        allowed: String,
    },
    /// Two arrays that must agree in shape do not.
    #[error("{name} has shape {given}; expected {expected}")]
    Shape {
        /// The array, spelt as the caller knows it.
        name: String,
        /// The shape that was given.
        given: String,
        /// The shape that was expected.
        expected: String,
    },
    /// The caller raised the cancel flag.
    #[error("cancelled")]
    Cancelled,
}

impl Error {
    /// Builds [`Error::Range`] from anything printable.
    pub fn range(
        name: impl Into<String>,
        given: impl std::fmt::Display,
        allowed: impl Into<String>,
    ) -> Self {
        Self::Range { name: name.into(), given: given.to_string(), allowed: allowed.into() }
    }

    /// Builds [`Error::Shape`] from anything printable.
    pub fn shape(
        name: impl Into<String>,
        given: impl std::fmt::Display,
        expected: impl std::fmt::Display,
    ) -> Self {
        Self::Shape { name: name.into(), given: given.to_string(), expected: expected.to_string() }
    }
}
