//! Starts a service's profiling as the environment says.

use std::error::Error;
use std::ffi::OsString;
use std::fmt;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::str::FromStr;

use rtprof_profiler::contention::{
    block_profile_rate, clear_profile_budget, is_budget, profile_budget, set_block_profile_rate,
    set_mutex_profile_fraction, set_profile_budget,
};
use rtprof_profiler::rate::set_mem_profile_rate;
use rtprof_runtime::{process, task};
use rtprof_trace_out::{FlightRecorder, Options};

use crate::at_exit::AtExit;
use crate::serve::listen::ReachedByOthers;
use crate::{Config, Server, serve_with};

const SWITCH: &str = "RTPROF";
const ADDRESS: &str = "RTPROF_ADDR";
const ALLOW_REMOTE: &str = "RTPROF_ALLOW_REMOTE";
const TOKEN: &str = "RTPROF_TOKEN";
const MEM_RATE: &str = "RTPROF_MEM_PROFILE_RATE";
const BLOCK_RATE: &str = "RTPROF_BLOCK_PROFILE_RATE";
const MUTEX_FRACTION: &str = "RTPROF_MUTEX_PROFILE_FRACTION";
const BUDGET: &str = "RTPROF_BUDGET";
const FLIGHT: &str = "RTPROF_FLIGHT";
const AT_EXIT: &str = "RTPROF_AT_EXIT";

/// Go's port, and those of further processes of the machine.
const DEFAULT_PORTS: [u16; 10] = [6060, 6061, 6062, 6063, 6064, 6065, 6066, 6067, 6068, 6069];
/// Every wait of 10 µs and more, shorter ones in proportion.
const DEFAULT_BLOCK_RATE: u64 = 10_000;
/// One contended unlock in ten.
const DEFAULT_MUTEX_FRACTION: i64 = 10;
/// Percent of the processor time.
const DEFAULT_BUDGET: f64 = 1.0;

/// Starts profiling for a service: serves `/debug/pprof/` on a thread of rtprof, and switches the block and mutex
/// profiles on at rates for production. Call it once, at the beginning of `main`. The operator changes what it does
/// by environment variables:
///
/// | variable | value | default |
/// |---|---|---|
/// | `RTPROF` | `off`: no server, no samples, and tasks that begin after `init` are not followed | `on` |
/// | `RTPROF_ADDR` | address and port of the server; port 0 is any free one; `off`: no server | `127.0.0.1:6060`, or the next free port up to 6069 |
/// | `RTPROF_ALLOW_REMOTE` | `on`: the address may be one that other machines reach ([`Config::allow_remote`]) | `off` |
/// | `RTPROF_TOKEN` | the token that requests must carry ([`Config::token`]) | none |
/// | `RTPROF_MEM_PROFILE_RATE` | allocated bytes per sample; 1 records all, 0 nothing | as before, 524288 |
/// | `RTPROF_BLOCK_PROFILE_RATE` | nanoseconds of waiting per sample; 1 records all, 0 nothing | 10000 |
/// | `RTPROF_MUTEX_PROFILE_FRACTION` | contended unlocks per sample; 1 records all, 0 nothing | 10 |
/// | `RTPROF_BUDGET` | percent of the processor time that samples of the block and mutex profiles may take; `off`: any | 1 |
/// | `RTPROF_FLIGHT` | `on`: a flight recorder runs ([`FlightRecorder`]), and `/debug/pprof/flight` has its window | `off` |
/// | `RTPROF_AT_EXIT` | profiles and a folder, as `heap,cpu:/var/tmp/profiles`: written into it when the process ends | none |
///
/// While waits are so frequent that samples at these rates would take more than the budget, rtprof samples at larger rates:
/// then a rate of 1 does not record all ([`set_profile_budget`]).
///
/// An empty variable counts as absent. In a set-uid or set-gid program all variables count as absent. With `RTPROF=off`
/// the other variables are not read. A rate other than 0 that the program has set before the call remains, unless its
/// variable is set; so does a heap rate of 0. If the program has set a budget, or the rate of the block or the mutex
/// profile, `init` sets no other budget unless the variable is set. The heap profile needs the program's
/// `#[global_allocator]` in any case.
///
/// `RTPROF_AT_EXIT` may name `heap`, `allocs`, `block`, `mutex`, `goroutine`, `goroutineleak`, `threadcreate`, `cpu`, which
/// is a CPU profile of the whole run, and with `RTPROF_FLIGHT=on` also `flight`. When `main` returns or the process
/// calls `exit`, the profiles are written into files that are named `PROFILE-TIME-PROCESS-PROGRAM.pb.gz`
/// (`flight-TIME-PROCESS-exit.trace`); the end of the process waits for this for a minute at most. A process that is
/// ended by a signal writes no files: a service that is stopped by SIGTERM has to handle this signal. While `cpu` runs,
/// other CPU profiles are refused.
///
/// Returns the server, or `None` if there is none. If the server is dropped, it runs on. If another process has port
/// 6060, and `RTPROF_ADDR` is not set, the server takes the next free port and a line on standard error says which. If
/// all ten are taken, the line says that there is no server, and `init` succeeds: a second process of a service starts
/// as the first one did.
///
/// Go: `import _ "net/http/pprof"`, `http.ListenAndServe`, and the variables of `GODEBUG`.
///
/// ```
/// # // A test must not depend on a free port 6060.
/// # // SAFETY: no other thread runs.
/// # unsafe { std::env::set_var("RTPROF_ADDR", "127.0.0.1:0") };
/// rtprof_http::init()?;
/// # Ok::<(), rtprof_http::InitError>(())
/// ```
///
/// # Errors
/// Fails if a variable has an invalid value, and then changes nothing. Also fails if something that a variable asks for
/// is not possible: a server at the address in `RTPROF_ADDR` ([`serve_with`]), for example because another process has
/// the port; files in a folder; or a flight recorder. Then what was begun before the error stays in effect: the rates
/// are set, and the recorder and the CPU profile run. A service that prefers to run without profiles logs the error and
/// goes on.
pub fn init() -> Result<Option<Server>, InitError> {
    // Of a set-uid program the caller chooses the variables, and must not choose its files and addresses.
    let is_trusted = !process::is_secure();
    Settings::read(|name| std::env::var_os(name).filter(|_| is_trusted))?.apply()
}

/// Why [`init`] failed. `Debug` prints the same sentences as `Display`, because a `main` that returns the error prints
/// it by `Debug`.
#[non_exhaustive]
pub enum InitError {
    /// A variable has an invalid value.
    #[non_exhaustive]
    Variable {
        /// The name of the variable.
        name: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        expected: &'static str,
    },
    /// The server could not be started.
    Serve(io::Error),
    /// What a variable asks for is not possible here.
    #[non_exhaustive]
    Refused {
        /// The name of the variable.
        name: &'static str,
        /// The reason.
        error: Box<dyn Error + Send + Sync>,
    },
}

impl fmt::Display for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Variable { name, value, expected } => {
                write!(f, "the variable {name} is {value:?}, but must be {expected}")
            }
            Self::Refused { name, error } => {
                write!(f, "the variable {name} asks for what is not possible: {error}")
            }
            Self::Serve(error) => match error.get_ref().and_then(|error| error.downcast_ref()) {
                Some(ReachedByOthers(address)) => write!(
                    f,
                    "{address} can be reached from other machines, and profiles tell names, paths and labels; serve on \
                     127.0.0.1, or allow it with the variable {ALLOW_REMOTE}=on and set a token in {TOKEN}"
                ),
                None => write!(
                    f,
                    "{error}. The variable {ADDRESS} sets another address and port (port 0 is any free one), and \
                     {ADDRESS}=off starts no server"
                ),
            },
        }
    }
}

impl fmt::Debug for InitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for InitError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            // `Display` has the text of these errors.
            Self::Serve(error) => error.source(),
            Self::Refused { error, .. } => error.source(),
            Self::Variable { .. } => None,
        }
    }
}

impl From<InitError> for io::Error {
    fn from(error: InitError) -> Self {
        let kind = match &error {
            InitError::Variable { .. } => io::ErrorKind::InvalidInput,
            InitError::Serve(error) => error.kind(),
            InitError::Refused { .. } => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// What the variables say.
#[derive(Debug, PartialEq)]
struct Settings {
    is_on: bool,
    address: Address,
    allow_remote: bool,
    token: Option<String>,
    mem_rate: Option<usize>,
    block_rate: Option<u64>,
    mutex_fraction: Option<i64>,
    budget: Option<Budget>,
    flight: bool,
    at_exit: Option<AtExit>,
}

/// Where the server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Address {
    /// There is no server.
    Off,
    /// At the first of the default ports that is free.
    Default,
    At(String),
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Budget {
    Off,
    Percent(f64),
}

impl Settings {
    const OFF: Self = Self {
        is_on: false,
        address: Address::Off,
        allow_remote: false,
        token: None,
        mem_rate: None,
        block_rate: None,
        mutex_fraction: None,
        budget: None,
        flight: false,
        at_exit: None,
    };

    /// Reads all variables before anything is changed.
    fn read(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, InitError> {
        let text = |name: &'static str| match variable(name).map(OsString::into_string) {
            None => Ok(None),
            Some(Ok(text)) => Ok(Some(text.trim().to_owned()).filter(|text| !text.is_empty())),
            Some(Err(value)) => {
                // A token is a secret, also a wrong one.
                let value =
                    if name == TOKEN { "..".to_owned() } else { value.to_string_lossy().into_owned() };
                Err(InitError::Variable { name, value, expected: "UTF-8" })
            }
        };
        // The operator who switches everything off is not held up by another variable.
        if switch(SWITCH, text(SWITCH)?)? == Some(false) {
            return Ok(Self::OFF);
        }
        Ok(Self {
            is_on: true,
            address: match text(ADDRESS)? {
                None => Address::Default,
                Some(value) if value.eq_ignore_ascii_case("off") => Address::Off,
                Some(value) if value.starts_with(':') => {
                    let expected =
                        "an address with a port, as 127.0.0.1:6060, or 0.0.0.0:6060 for all networks";
                    return Err(InitError::Variable { name: ADDRESS, value, expected });
                }
                Some(value) => Address::At(value),
            },
            allow_remote: switch(ALLOW_REMOTE, text(ALLOW_REMOTE)?)?.unwrap_or(false),
            token: text(TOKEN)?,
            mem_rate: number(MEM_RATE, text(MEM_RATE)?, "a number of bytes, 0 for no samples")?,
            block_rate: number(BLOCK_RATE, text(BLOCK_RATE)?, "a number of nanoseconds, 0 for no samples")?,
            mutex_fraction: number::<u32>(
                MUTEX_FRACTION,
                text(MUTEX_FRACTION)?,
                "a number up to 4294967295, 0 for no samples",
            )?
            .map(i64::from),
            budget: text(BUDGET)?.map(budget).transpose()?,
            flight: switch(FLIGHT, text(FLIGHT)?)?.unwrap_or(false),
            at_exit: text(AT_EXIT)?.map(at_exit).transpose()?,
        })
    }

    fn apply(self) -> Result<Option<Server>, InitError> {
        if !self.is_on {
            set_mem_profile_rate(0);
            set_block_profile_rate(0);
            set_mutex_profile_fraction(0);
            task::set_followed(false);
            return Ok(None);
        }
        if let Some(bytes) = self.mem_rate {
            set_mem_profile_rate(bytes);
        }
        // Without a variable, a rate or a budget that the program has set remains.
        let (has_block, has_mutex) = (block_profile_rate() != 0, set_mutex_profile_fraction(-1) != 0);
        let is_untouched = !has_block && !has_mutex && profile_budget().is_none();
        // Before the rates: no event is sampled without it.
        match self.budget.or(is_untouched.then_some(Budget::Percent(DEFAULT_BUDGET))) {
            Some(Budget::Off) => clear_profile_budget(),
            Some(Budget::Percent(percent)) => {
                set_profile_budget(percent).expect("the variable was checked");
            }
            None => {}
        }
        if let Some(nanos) = self.block_rate.or((!has_block).then_some(DEFAULT_BLOCK_RATE)) {
            set_block_profile_rate(nanos);
        }
        if let Some(fraction) = self.mutex_fraction.or((!has_mutex).then_some(DEFAULT_MUTEX_FRACTION)) {
            set_mutex_profile_fraction(fraction);
        }
        // One that the program has started remains.
        if self.flight && FlightRecorder::current().is_none() {
            let started = FlightRecorder::new(Options::default()).start();
            started.map_err(|error| InitError::Refused { name: FLIGHT, error: error.into() })?;
        }
        if let Some(at_exit) = self.at_exit {
            at_exit.start().map_err(|error| InitError::Refused { name: AT_EXIT, error })?;
        }
        let config = Config { allow_remote: self.allow_remote, token: self.token, ..Config::default() };
        match self.address {
            Address::Off => Ok(None),
            Address::At(address) => serve_with(&*address, config).map(Some).map_err(InitError::Serve),
            Address::Default => {
                let ports = DEFAULT_PORTS.map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
                let (server, remark) = serve_on_first(&ports, config);
                if let Some(remark) = remark {
                    // There may be no standard error.
                    let _ = writeln!(io::stderr(), "rtprof: {remark}");
                }
                Ok(server)
            }
        }
    }
}

/// Serves at the first of the addresses that is free, and returns a remark if that is not the first one. An operator who
/// has set no address is not to lose the program to an address.
fn serve_on_first(addresses: &[SocketAddr], config: Config) -> (Option<Server>, Option<String>) {
    let first = addresses[0];
    match serve_with(addresses, config) {
        Ok(server) if server.local_addr() == first => (Some(server), None),
        Ok(server) => {
            let remark = format!(
                "{first} is taken: profiles are at http://{}/debug/pprof/ ({ADDRESS} sets another address)",
                server.local_addr()
            );
            (Some(server), Some(remark))
        }
        Err(error) => {
            (None, Some(format!("{error}. There are no profiles over HTTP; {ADDRESS} sets an address")))
        }
    }
}

fn switch(name: &'static str, value: Option<String>) -> Result<Option<bool>, InitError> {
    let Some(value) = value else { return Ok(None) };
    match &*value.to_ascii_lowercase() {
        "on" | "1" | "true" => Ok(Some(true)),
        "off" | "0" | "false" => Ok(Some(false)),
        _ => Err(InitError::Variable { name, value, expected: "on or off" }),
    }
}

fn budget(value: String) -> Result<Budget, InitError> {
    if value.eq_ignore_ascii_case("off") {
        return Ok(Budget::Off);
    }
    let percent = value.strip_suffix('%').unwrap_or(&value).trim_end().parse().ok();
    percent.filter(|&percent| is_budget(percent)).map(Budget::Percent).ok_or(InitError::Variable {
        name: BUDGET,
        value,
        expected: "percent of the processor time, more than 0 and at most 100, or off",
    })
}

fn at_exit(value: String) -> Result<AtExit, InitError> {
    AtExit::of(&value).ok_or(InitError::Variable { name: AT_EXIT, value, expected: AtExit::EXPECTED })
}

fn number<T: FromStr>(
    name: &'static str,
    value: Option<String>,
    expected: &'static str,
) -> Result<Option<T>, InitError> {
    value.map(|value| value.parse().map_err(|_| InitError::Variable { name, value, expected })).transpose()
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    fn read(variables: &[(&str, &str)]) -> Result<Settings, String> {
        let find = |name: &str| variables.iter().find(|(known, _)| *known == name);
        Settings::read(|name| find(name).map(|(_, value)| value.into())).map_err(|error| error.to_string())
    }

    #[test]
    fn variables_replace_defaults() {
        let defaults = read(&[]).unwrap();
        assert!(defaults.is_on && !defaults.allow_remote);
        assert_eq!(defaults.address, Address::Default);
        assert_eq!((defaults.flight, &defaults.at_exit), (false, &None));
        assert_eq!((defaults.mem_rate, defaults.block_rate, defaults.mutex_fraction), (None, None, None));
        assert_eq!(defaults.budget, None);
        // Kubernetes sets variables that begin with the name of a service.
        assert_eq!(
            read(&[("RTPROF_ADDR", " "), ("RTPROF", ""), ("RTPROF_PORT", "tcp://10.0.0.1")]),
            Ok(defaults)
        );
        let set = read(&[
            ("RTPROF_ADDR", "0.0.0.0:7070"),
            ("RTPROF_ALLOW_REMOTE", "on"),
            ("RTPROF_TOKEN", "s3cret"),
            ("RTPROF_MEM_PROFILE_RATE", "1"),
            ("RTPROF_BLOCK_PROFILE_RATE", "0"),
            ("RTPROF_MUTEX_PROFILE_FRACTION", "100"),
            ("RTPROF_BUDGET", "0.5"),
            ("RTPROF_FLIGHT", "on"),
            ("RTPROF_AT_EXIT", "heap:/tmp"),
        ]);
        let expected = Settings {
            is_on: true,
            address: Address::At("0.0.0.0:7070".to_owned()),
            allow_remote: true,
            token: Some("s3cret".to_owned()),
            mem_rate: Some(1),
            block_rate: Some(0),
            mutex_fraction: Some(100),
            budget: Some(Budget::Percent(0.5)),
            flight: true,
            at_exit: AtExit::of("heap:/tmp"),
        };
        assert_eq!(set, Ok(expected));
        assert_eq!(read(&[("RTPROF_ADDR", "off")]).unwrap().address, Address::Off);
        assert_eq!(read(&[("RTPROF_ADDR", "OFF")]).unwrap().address, Address::Off);
        assert_eq!(read(&[("RTPROF_BUDGET", "Off")]).unwrap().budget, Some(Budget::Off));
        assert_eq!(read(&[("RTPROF_BUDGET", "100 %")]).unwrap().budget, Some(Budget::Percent(100.0)));
        assert_eq!(read(&[("RTPROF", "OFF"), ("RTPROF_BLOCK_PROFILE_RATE", "x")]), Ok(Settings::OFF));
    }

    #[test]
    fn a_taken_port_is_left_for_the_next() {
        let local = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let taken = std::net::TcpListener::bind(local(0)).unwrap();
        let taken = taken.local_addr().unwrap();
        let (server, remark) = serve_on_first(&[taken, local(0)], Config::default());
        let (at, remark) = (server.unwrap().local_addr(), remark.unwrap());
        assert_ne!(at, taken);
        assert!(
            remark.starts_with(&format!("{taken} is taken")) && remark.contains(&at.to_string()),
            "{remark}"
        );
        let (server, remark) = serve_on_first(&[taken], Config::default());
        let remark = remark.unwrap();
        assert!(server.is_none() && remark.contains("in use") && remark.contains(ADDRESS), "{remark}");
    }

    #[test]
    fn impossible_values_are_named() {
        for (name, value) in [
            ("RTPROF", "maybe"),
            ("RTPROF_ADDR", ":6060"),
            ("RTPROF_ALLOW_REMOTE", "127.0.0.1"),
            ("RTPROF_MEM_PROFILE_RATE", "512k"),
            ("RTPROF_BLOCK_PROFILE_RATE", "-1"),
            ("RTPROF_MUTEX_PROFILE_FRACTION", "4294967296"),
            ("RTPROF_BUDGET", "0"),
            ("RTPROF_BUDGET", "-1"),
            ("RTPROF_BUDGET", "NaN"),
            ("RTPROF_BUDGET", "101"),
            ("RTPROF_BUDGET", "some"),
            ("RTPROF_FLIGHT", "30s"),
            ("RTPROF_AT_EXIT", "heap"),
            ("RTPROF_AT_EXIT", "heaps:/tmp"),
        ] {
            let error = read(&[(name, value)]).unwrap_err();
            assert!(error.contains(name) && error.contains(value) && error.contains("must be"), "{error}");
        }
        let error = Settings::read(|_| Some(OsString::from_vec(vec![0xff]))).unwrap_err();
        assert!(error.to_string().contains("UTF-8"), "{error}");
        let token = |name: &str| (name == TOKEN).then(|| OsString::from_vec(b"s3cret\xff".to_vec()));
        let error = Settings::read(token).unwrap_err();
        assert!(error.to_string().contains(TOKEN) && !error.to_string().contains("s3cret"), "{error}");
    }
}
