//! The formats of windows.

use rtprof_symbols::view::View;
use rtprof_tracer::generation::{Generation, Tables};

use crate::encode::{Clock, Counts, Encode};
use crate::error::TraceError;
use crate::options::Format;
use crate::perfetto::{self, GenerationFile, Perfetto};
use crate::v2::{self, V2, Version};

/// Encodes the generations that a flight recorder keeps.
pub(super) enum Encoder {
    Go(Box<V2>),
    Perfetto(Box<Perfetto>),
}

/// An encoded generation whose names are looked up when it is written.
pub(super) enum EncodedGeneration {
    Go(v2::UnnamedGeneration),
    Perfetto(perfetto::UnnamedGeneration),
}

/// The file of a window.
pub(super) enum File {
    Go,
    Perfetto(GenerationFile),
}

/// Returns the version of Go that is named by a format; `None` for Perfetto's.
///
/// # Errors
/// [`TraceError::FlightFormat`] if the format has no windows.
pub(super) fn version(format: Format) -> Result<Option<Version>, TraceError> {
    match format {
        Format::V2 => Ok(Some(Version::Go126)),
        Format::V2Go122 => Ok(Some(Version::Go122)),
        Format::Perfetto => Ok(None),
        Format::V1 => Err(TraceError::FlightFormat(format)),
    }
}

/// Returns how many times as large as its records a generation of this format is, at most.
pub(super) fn growth(format: Format) -> usize {
    match format {
        Format::V1 | Format::V2 | Format::V2Go122 => 1,
        Format::Perfetto => 5,
    }
}

impl Encoder {
    /// `procs` is the number of goroutines that can run at once.
    ///
    /// # Errors
    /// As of [`version`].
    pub(super) fn new(format: Format, clock: Clock, procs: u32, view: View) -> Result<Self, TraceError> {
        Ok(match version(format)? {
            Some(version) => Self::Go(Box::new(V2::new(version, clock, procs, view))),
            None => Self::Perfetto(Box::new(Perfetto::new(clock, view))),
        })
    }

    pub(super) fn part(&mut self, generation: &Generation<'_>, tables: &dyn Tables) -> EncodedGeneration {
        match self {
            Self::Go(encoder) => {
                encoder.generation(generation, tables, &mut Vec::new());
                EncodedGeneration::Go(encoder.end_part())
            }
            Self::Perfetto(encoder) => {
                encoder.generation(generation, tables, &mut Vec::new());
                EncodedGeneration::Perfetto(encoder.end_part(tables))
            }
        }
    }

    pub(super) fn counts(&self) -> Counts {
        match self {
            Self::Go(encoder) => encoder.counts(),
            Self::Perfetto(encoder) => encoder.counts(),
        }
    }
}

impl EncodedGeneration {
    /// Returns the memory that it takes, roughly.
    pub(super) fn memory(&self) -> usize {
        match self {
            Self::Go(part) => part.memory(),
            Self::Perfetto(part) => part.memory(),
        }
    }
}

impl File {
    /// Appends the beginning of a file.
    ///
    /// # Errors
    /// As of [`version`].
    pub(super) fn begin(format: Format, out: &mut Vec<u8>) -> Result<Self, TraceError> {
        Ok(match version(format)? {
            Some(version) => {
                out.extend_from_slice(version.header());
                Self::Go
            }
            None => Self::Perfetto(GenerationFile::begin(out)),
        })
    }

    /// Appends a part of this format, the one after the last one. `tables` must be those of the records.
    pub(super) fn put(
        &mut self,
        part: &EncodedGeneration,
        tables: &dyn Tables,
        view: View,
        out: &mut Vec<u8>,
    ) {
        match (self, part) {
            (Self::Go, EncodedGeneration::Go(part)) => {
                out.extend_from_slice(part.events());
                part.put_names(tables, view, out);
            }
            (Self::Perfetto(file), EncodedGeneration::Perfetto(part)) => file.put(part, tables, view, out),
            _ => unreachable!("a flight recorder has one format"),
        }
    }
}
