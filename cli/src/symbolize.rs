//! `rtprof symbolize`: names for a profile of a stripped program.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read, Write as _};
use std::path::{Path, PathBuf};

/// The arguments of the command.
pub(crate) struct Arguments {
    pub(crate) binary: PathBuf,
    /// Standard output without it.
    pub(crate) output: Option<PathBuf>,
    /// Standard input without it.
    pub(crate) profile: Option<PathBuf>,
}

/// Reads the profile, and writes it with names. Nothing is written before all of it was read and named, so that the output may
/// be the profile's own file.
pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let profile: Box<dyn Read> = match &arguments.profile {
        Some(path) => Box::new(File::open(path).map_err(at(path))?),
        None => Box::new(io::stdin()),
    };
    if arguments.output.is_none() && io::stdout().is_terminal() {
        return Err("the profile is not text: give --output, or redirect the output".to_owned());
    }
    let mut named = Vec::new();
    rtprof_pprof_out::symbolize(profile, &arguments.binary, &mut named).map_err(|error| error.to_string())?;
    match &arguments.output {
        Some(path) => std::fs::write(path, named).map_err(at(path)),
        None => io::stdout().write_all(&named).map_err(|error| error.to_string()),
    }
}

fn at(path: &Path) -> impl Fn(io::Error) -> String {
    move |error| format!("{}: {error}", path.display())
}
