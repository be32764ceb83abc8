//! The configuration of a server.

/// Permissions and limits of a server or a handler. The default is safe on a machine with other users and a browser.
///
/// ```
/// let config = rtprof_http::Config { max_seconds: 60, ..Default::default() };
/// # assert_eq!(config.max_captures, 8);
/// ```
#[derive(Clone)]
pub struct Config {
    /// Whether [`serve_with`](crate::serve_with) may bind an address that other machines reach; `false` by default. A
    /// profile reveals names of functions, paths and labels to all its readers. So set a [`token`](Self::token) as
    /// well; rtprof does not enforce that.
    pub allow_remote: bool,
    /// The token that every request must carry, in `Authorization: Bearer TOKEN`, or as the password of any user in
    /// `Authorization: Basic`, as browsers send it and `go tool pprof http://any:TOKEN@HOST/..` does; `None` by
    /// default. White space around the token is ignored. An empty token refuses every request.
    pub token: Option<String>,
    /// Further names, without a port, that the `Host` of a request to a loopback address may have, besides `localhost`
    /// and the loopback addresses themselves; empty by default. They are for a proxy on the same machine that passes
    /// such a name on in its own requests.
    pub hosts: Vec<String>,
    /// Whether `/debug/pprof/cmdline` shows the program's arguments, which may contain passwords; `false` by default.
    pub cmdline: bool,
    /// Whether the server resolves names and lines unless a request says otherwise; `true` by default. If `false`,
    /// profiles have addresses only, as with `symbolize=none`, and `go tool pprof` asks for names at
    /// `/debug/pprof/symbol`. Flame graphs, collapsed stacks and `symbolize=full` are always resolved.
    pub symbolize: bool,
    /// The maximum of `seconds=` in a request; 600 by default.
    pub max_seconds: u64,
    /// The maximum number of captures at one time, including those that wait for their `seconds=` to pass; 8 by
    /// default. A request that has waited ten seconds for its turn is answered 503.
    pub max_captures: usize,
    /// The maximum number of connections of a server at one time; 128 by default. Further connections wait in the
    /// system's queue.
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
        // All readers of the log could use a token printed there.
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
