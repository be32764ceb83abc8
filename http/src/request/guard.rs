//! Access control: the `Host` to which a request was sent, and its token.

use std::net::IpAddr;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::{AUTHORIZATION, HOST, HeaderMap};
use http::uri::Authority;
use http::{StatusCode, Uri, Version};
use subtle::ConstantTimeEq;

use crate::answer::Refusal;

/// Accepts a request that was sent to a name of this machine itself.
///
/// A page of any site may have its own name resolve to 127.0.0.1 after it is loaded. From then on its script can read
/// what the browser's machine serves there as if that were the site's (DNS rebinding). The `Host` of the request
/// reveals this.
pub(crate) fn host(head: &http::request::Parts, also: &[String]) -> Result<(), Refusal> {
    let Some(host) = host_of(&head.uri, &head.headers, head.version)? else { return Ok(()) };
    let refused = || {
        let message = format!(
            "Host {host:?} is not this machine's own name; use localhost, or allow the name in Config::hosts"
        );
        Refusal::new(StatusCode::FORBIDDEN, message)
    };
    let authority: Authority = host.parse().map_err(|_| Refusal::bad_request("malformed Host header"))?;
    let name = authority.host();
    let is_named = |known: &str| name.trim_end_matches('.').eq_ignore_ascii_case(known);
    if is_loopback(name) || is_named("localhost") || also.iter().any(|known| is_named(known)) {
        Ok(())
    } else {
        Err(refused())
    }
}

/// Returns the host to which a request was sent; `None` if an old client does not send one. A host in the request
/// target takes precedence over the header.
fn host_of<'a>(uri: &'a Uri, headers: &'a HeaderMap, version: Version) -> Result<Option<&'a str>, Refusal> {
    let mut hosts = headers.get_all(HOST).iter();
    let first = hosts.next();
    if hosts.next().is_some() {
        return Err(Refusal::bad_request("too many Host headers"));
    }
    if let Some(authority) = uri.authority() {
        return Ok(Some(authority.as_str()));
    }
    match first.map(|host| host.to_str()) {
        Some(Ok(host)) => Ok(Some(host)),
        Some(Err(_)) => Err(Refusal::bad_request("malformed Host header")),
        None if version <= Version::HTTP_10 => Ok(None),
        None => Err(Refusal::bad_request("missing required Host header")),
    }
}

fn is_loopback(name: &str) -> bool {
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    bare.parse().is_ok_and(|address: IpAddr| address.to_canonical().is_loopback())
}

/// Refuses requests that pages of other sites cause without their reader's action, as images and frames. Those pages
/// cannot read the answers, but captures take permits and the program's time. A reader who follows a link is accepted.
/// Browsers report the origin of a request, on loopback too; other clients send no such header.
pub(crate) fn site(headers: &HeaderMap) -> Result<(), Refusal> {
    let is = |name: &str, value: &str| headers.get(name).is_some_and(|given| given == value);
    let by_another = is("sec-fetch-site", "cross-site") || is("sec-fetch-site", "same-site");
    let is_link = is("sec-fetch-mode", "navigate") && is("sec-fetch-dest", "document");
    if by_another && !is_link {
        return Err(Refusal::new(StatusCode::FORBIDDEN, "another site's page asks for this"));
    }
    Ok(())
}

/// Accepts a request that carries the token, as a bearer or as a password of any user.
pub(crate) fn token(headers: &HeaderMap, token: &str) -> Result<(), Refusal> {
    // A token that was read from a file ends in a line break; one that was read from nowhere is empty.
    let token = token.trim();
    if token.is_empty() {
        return Err(Refusal::unauthorized(
            "no token is right: Config::token is empty; was its file or variable read?",
        ));
    }
    let required = || {
        Refusal::unauthorized("a token is required: Authorization: Bearer TOKEN, or the token as a password")
    };
    let mut given = headers.get_all(AUTHORIZATION).iter();
    let first = given.next().ok_or_else(required)?;
    let wrong = || Refusal::unauthorized("the token is not the right one");
    if given.next().is_some() {
        return Err(wrong());
    }
    let (scheme, rest) = first.to_str().ok().and_then(|text| text.split_once(' ')).ok_or_else(wrong)?;
    let rest = rest.trim_start();
    let is_right = if scheme.eq_ignore_ascii_case("bearer") {
        is_equal(rest.as_bytes(), token)
    } else if scheme.eq_ignore_ascii_case("basic") {
        let pair = BASE64_STANDARD.decode(rest).map_err(|_| wrong())?;
        let colon = pair.iter().position(|&byte| byte == b':').ok_or_else(wrong)?;
        is_equal(&pair[colon + 1..], token)
    } else {
        return Err(required());
    };
    if is_right { Ok(()) } else { Err(wrong()) }
}

/// Compares in a time that does not reveal how many bytes agree.
fn is_equal(given: &[u8], token: &str) -> bool {
    given.ct_eq(token.as_bytes()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(version: Version, uri: &str, hosts: &[&str]) -> http::request::Parts {
        let mut request = http::Request::builder().version(version).uri(uri);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn only_names_of_this_machine_pass() {
        let also = ["profiles.example".to_owned()];
        let passes = |host: &str| super::host(&head(Version::HTTP_11, "/", &[host]), &also);
        for own in [
            "localhost",
            "localhost:6060",
            "LOCALHOST.",
            "127.0.0.1",
            "127.0.0.1:6060",
            "127.255.0.3:1",
            "[::1]",
            "[::1]:6060",
            "[::ffff:127.0.0.1]",
            "profiles.example",
            "Profiles.Example:80",
        ] {
            assert_eq!(passes(own), Ok(()), "{own}");
        }
        for foreign in [
            "evil.example",
            "evil.example:6060",
            "10.0.0.1",
            "[2001:db8::1]:6060",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "0.0.0.0",
            "xlocalhost",
            "127.1",
            "2130706433",
        ] {
            let text = format!(
                "Host {foreign:?} is not this machine's own name; use localhost, or allow the name in Config::hosts"
            );
            assert_eq!(passes(foreign), Err(Refusal::new(StatusCode::FORBIDDEN, text)));
        }
        for broken in ["", "a b", "local host", "[::1", "http://localhost"] {
            assert_eq!(passes(broken), Err(Refusal::bad_request("malformed Host header")), "{broken}");
        }
    }

    #[test]
    fn there_is_one_host() {
        let host = |version, uri, hosts: &[&str]| super::host(&head(version, uri, hosts), &[]);
        let bad = |message: &str| Err(Refusal::bad_request(message));
        assert_eq!(host(Version::HTTP_11, "/", &[]), bad("missing required Host header"));
        assert_eq!(host(Version::HTTP_10, "/", &[]), Ok(()));
        assert_eq!(host(Version::HTTP_11, "/", &["localhost", "localhost"]), bad("too many Host headers"));
        // The target's own name takes precedence over the header.
        assert_eq!(host(Version::HTTP_11, "http://localhost/", &["evil.example"]), Ok(()));
        assert!(host(Version::HTTP_11, "http://evil.example/", &["localhost"]).is_err());
    }

    #[test]
    fn other_sites_only_link_here() {
        let asked = |values: &[(&'static str, &str)]| {
            let pairs = values.iter().map(|(name, value)| {
                (http::HeaderName::from_static(name), http::HeaderValue::from_str(value).unwrap())
            });
            site(&pairs.collect())
        };
        assert_eq!(asked(&[]), Ok(()));
        for site in ["same-origin", "none"] {
            assert_eq!(asked(&[("sec-fetch-site", site), ("sec-fetch-dest", "image")]), Ok(()));
        }
        for site in ["cross-site", "same-site"] {
            let of = |mode, dest| {
                asked(&[("sec-fetch-site", site), ("sec-fetch-mode", mode), ("sec-fetch-dest", dest)])
            };
            assert_eq!(of("navigate", "document"), Ok(()));
            let refused = Err(Refusal::new(StatusCode::FORBIDDEN, "another site's page asks for this"));
            for (mode, dest) in [("no-cors", "image"), ("navigate", "iframe"), ("cors", "empty")] {
                assert_eq!(of(mode, dest), refused, "{site} {mode} {dest}");
            }
            assert_eq!(asked(&[("sec-fetch-site", site)]), refused);
        }
    }

    #[test]
    fn an_empty_token_lets_nobody_in() {
        for empty in ["", " ", "\n"] {
            for given in ["Bearer ", "Bearer", "Basic Og==", "Basic YW55Og=="] {
                let headers = HeaderMap::from_iter([(AUTHORIZATION, given.parse().unwrap())]);
                assert!(token(&headers, empty).is_err(), "{given}");
            }
        }
        let headers = HeaderMap::from_iter([(AUTHORIZATION, "Bearer abc".parse().unwrap())]);
        assert_eq!(token(&headers, "abc\n"), Ok(()));
    }

    fn with(authorization: &[&str]) -> Result<(), Refusal> {
        let mut headers = HeaderMap::new();
        for value in authorization {
            headers.append(AUTHORIZATION, value.parse().unwrap());
        }
        token(&headers, "s3cret:x")
    }

    #[test]
    fn a_token_is_a_bearers_or_a_password() {
        let basic = |pair: &str| format!("Basic {}", BASE64_STANDARD.encode(pair));
        for right in ["Bearer s3cret:x", "bearer  s3cret:x", &basic("any:s3cret:x"), &basic(":s3cret:x")] {
            assert_eq!(with(&[right]), Ok(()), "{right}");
        }
        for none_given in [&[][..], &["Digest s3cret:x"]] {
            assert_eq!(
                with(none_given),
                Err(Refusal::unauthorized(
                    "a token is required: Authorization: Bearer TOKEN, or the token as a password",
                ))
            );
        }
        let wrong = || Err(Refusal::unauthorized("the token is not the right one"));
        for given in [
            "",
            "Bearer",
            "Bearer ",
            "Bearer s3cret",
            "Bearer s3cret:xx",
            "s3cret:x",
            "Basic s3cret:x",
            "Basic %%%",
            &basic("s3cret"),
            &basic("s3cret:x"),
            &basic("any:s3cret"),
        ] {
            assert_eq!(with(&[given]), wrong(), "{given}");
        }
        assert_eq!(with(&["Bearer s3cret:x", "Bearer s3cret:x"]), wrong());
    }
}
