//! How the stacks of an export are shown.

use crate::symbolizer::Symbolization;

/// How the stacks of an export are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// Who finds names.
    pub(crate) symbolization: Symbolization,
    /// Whether std's frames below the program's first function are shown (`startup`).
    pub(crate) startup_frames: bool,
}
