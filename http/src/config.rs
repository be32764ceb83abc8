//! What a server may do.

/// What a server or a handler may do. The default is safe on a machine with other users and a browser.
///
/// ```
/// let config = rtprof_http::Config { max_seconds: 60, ..Default::default() };
/// # assert_eq!(config.max_captures, 8);
/// ```
#[derive(Clone)]
pub struct Config {
    /// Whether [`serve_with`](crate::serve_with) may bind an address that other machines reach; `false`. A profile
    /// tells names of functions, paths and labels to whoever reads it: set a [`token`](Self::token) as well, which is not
    /// enforced.
    pub allow_remote: bool,
    /// What every request must bring, in `Authorization: Bearer TOKEN`, or as the password of any user in
    /// `Authorization: Basic`, as browsers send it and `go tool pprof http://any:TOKEN@HOST/..` does; `None`. White space
    /// around it does not count. An empty one lets nobody in.
    pub token: Option<String>,
    /// Names, without a port, that the `Host` of a request may have on a loopback address beside `localhost` and the
    /// loopback addresses themselves; empty. For a proxy on the same machine that keeps the name it was called by.
    pub hosts: Vec<String>,
    /// Whether `/debug/pprof/cmdline` tells the program's arguments, which may hold passwords; `false`.
    pub cmdline: bool,
    /// Whether names and lines are resolved here unless a request says otherwise; `true`. Without, profiles have
    /// addresses only, as with `symbolize=none`, and `go tool pprof` asks for names at `/debug/pprof/symbol`. Flame
    /// graphs, collapsed stacks and `symbolize=full` are resolved all the same.
    pub symbolize: bool,
    /// The longest `seconds=` in a request; 600.
    pub max_seconds: u64,
    /// Captures that run at one time, those included that wait for their `seconds=` to pass; 8. A request that finds
    /// none free for ten seconds is answered 503.
    pub max_captures: usize,
    /// Connections that a server has at one time; 128. Further ones wait for the system to accept them.
    pub max_connections: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            allow_remote: false,
            token: None,
            hosts: Vec::new(),
            cmdline: false,
            symbolize: true,
            max_seconds: 600,
            max_captures: 8,
            max_connections: 128,
        }
    }
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A token in a log is a token for all who read the log.
        let token = self.token.as_ref().map(|_| "..");
        f.debug_struct("Config")
            .field("allow_remote", &self.allow_remote)
            .field("token", &token)
            .field("hosts", &self.hosts)
            .field("cmdline", &self.cmdline)
            .field("symbolize", &self.symbolize)
            .field("max_seconds", &self.max_seconds)
            .field("max_captures", &self.max_captures)
            .field("max_connections", &self.max_connections)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_not_printed() {
        let config = Config { token: Some("s3cret".into()), ..Config::default() };
        let printed = format!("{config:?}");
        assert!(printed.contains("token: Some(\"..\")") && !printed.contains("s3cret"), "{printed}");
    }
}
