//! The encoder of each format.

use rtprof_symbols::view::View;

use crate::encode::{Clock, Encode};
use crate::options::Format;
use crate::perfetto::Perfetto;
use crate::v1::V1;
use crate::v2::{V2, Version};

/// Returns the encoder of a format, of a trace of a program in which `procs` threads can run at once.
pub(crate) fn encoder(format: Format, clock: Clock, procs: u32, view: View) -> Box<dyn Encode + Send + Sync> {
    match format {
        Format::V1 => Box::new(V1::new(clock, procs, view)),
        Format::Perfetto => Box::new(Perfetto::new(clock, view)),
        Format::V2 => Box::new(V2::new(Version::Go126, clock, procs, view)),
        Format::V2Go122 => Box::new(V2::new(Version::Go122, clock, procs, view)),
    }
}
