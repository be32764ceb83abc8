//! The command `rtprof`. `rtprof symbolize` names the functions in a profile of a stripped program.

#![forbid(unsafe_code)]

mod symbolize;

use std::ffi::OsString;
use std::process::ExitCode;

const USAGE: &str = "\
Usage: rtprof symbolize --binary FILE [--output FILE] [PROFILE]

symbolize   reads a profile of a stripped program (profile.proto, gzipped or not; standard input
            by default), and writes it with names, files and lines, to standard output by default.

  -b, --binary FILE   an unstripped copy of the same build, or its debug file
  -o, --output FILE   where to write the profile
  -h, --help          print this
  -V, --version       print the version
";

/// What the arguments ask for.
enum Command {
    Help,
    Version,
    Symbolize(symbolize::Arguments),
}

fn main() -> ExitCode {
    let done = match parse(std::env::args_os().skip(1)) {
        Ok(Command::Help) => {
            print!("{USAGE}");
            Ok(())
        }
        Ok(Command::Version) => {
            println!("rtprof {}", env!("CARGO_PKG_VERSION"));
            Ok(())
        }
        Ok(Command::Symbolize(arguments)) => symbolize::run(&arguments),
        Err(error) => {
            eprintln!("rtprof: {error}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rtprof: {error}");
            ExitCode::FAILURE
        }
    }
}

fn parse(arguments: impl Iterator<Item = OsString>) -> Result<Command, lexopt::Error> {
    use lexopt::prelude::*;

    let mut parser = lexopt::Parser::from_args(arguments);
    let (mut binary, mut output, mut profile) = (None, None, None);
    let mut has_command = false;
    while let Some(argument) = parser.next()? {
        match argument {
            Short('h') | Long("help") => return Ok(Command::Help),
            Short('V') | Long("version") => return Ok(Command::Version),
            Short('b') | Long("binary") => binary = Some(parser.value()?.into()),
            Short('o') | Long("output") => output = Some(parser.value()?.into()),
            Value(command) if !has_command && command == "symbolize" => has_command = true,
            Value(path) if has_command && profile.is_none() => profile = Some(path.into()),
            other => return Err(other.unexpected()),
        }
    }
    if !has_command {
        return Err("no command is given".into());
    }
    let binary = binary.ok_or("--binary is missing: an unstripped copy of the program")?;
    Ok(Command::Symbolize(symbolize::Arguments { binary, output, profile }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    fn parsed(line: &str) -> Result<Command, String> {
        parse(line.split_whitespace().map(OsString::from)).map_err(|error| error.to_string())
    }

    #[test]
    fn arguments() {
        for line in ["symbolize -b app -o out heap", "symbolize --output=out heap --binary app"] {
            let Ok(Command::Symbolize(arguments)) = parsed(line) else { panic!("{line}") };
            assert_eq!(arguments.binary, Path::new("app"));
            assert_eq!(arguments.output.as_deref(), Some(Path::new("out")));
            assert_eq!(arguments.profile.as_deref(), Some(Path::new("heap")));
        }
        let Ok(Command::Symbolize(arguments)) = parsed("symbolize -bapp") else { panic!() };
        assert_eq!((arguments.output, arguments.profile), (None, None));
        assert!(matches!(parsed("--help"), Ok(Command::Help)));
        assert!(matches!(parsed("symbolize -V"), Ok(Command::Version)));
        for (line, error) in [
            ("", "no command is given"),
            ("symbolize heap", "--binary is missing: an unstripped copy of the program"),
            ("symbolise", "unexpected argument \"symbolise\""),
            ("symbolize -b app one two", "unexpected argument \"two\""),
            ("symbolize --binray app", "invalid option '--binray'"),
        ] {
            assert_eq!(parsed(line).err().as_deref(), Some(error), "{line}");
        }
    }
}
