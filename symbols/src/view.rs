//! How the stacks of an export are shown.

use crate::symbolizer::Symbolization;

/// How the stacks of an export are shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Whether and how names are resolved.
    pub symbolization: Symbolization,
    /// Whether std's frames below the program's first function are shown (`startup`).
    pub startup_frames: bool,
    /// Whether stacks begin at the program's own code: without what it calls in libraries (`program_code`).
    pub from_program: bool,
}
