use super::*;

const LIMITS: Limits = Limits { max_seconds: 600, symbolize: true };
const HEAP: RequestedProfile<'_> = RequestedProfile {
    name: "heap",
    has_delta: true,
    has_dump: false,
    sample_types: &["alloc_objects", "alloc_space", "inuse_objects", "inuse_space"],
    default_sample_type: 3,
};

fn uri(query: &str) -> http::Uri {
    format!("/debug/pprof/heap?{query}").parse().unwrap()
}

fn request_of(
    subject: &RequestedProfile<'_>,
    query: &str,
    limits: Limits,
) -> Result<ProfileRequest, Refusal> {
    ProfileRequest::of(&Query::of(&uri(query)), subject, limits)
}

fn request(query: &str) -> Result<ProfileRequest, Refusal> {
    request_of(&HEAP, query, LIMITS)
}

fn form(form: Form) -> Result<ProfileRequest, Refusal> {
    Ok(ProfileRequest { over: None, publish: false, form, view: View::default(), goroutines: None })
}

const PROTO: Form = Form::Proto(Names::InTime);
const TEXT: Form = Form::Text(Names::InTime);

#[test]
fn debug_is_a_number_or_nothing() {
    for query in [
        "",
        "debug=0",
        "debug=",
        "debug=x",
        "debug=1x",
        "debug=1;a=b",
        "debug=%zz",
        "Debug=1",
        "debug=0&debug=1",
    ] {
        assert_eq!(request(query), form(PROTO), "{query}");
    }
    for query in ["debug=1", "debug=2", "debug=-1", "debug=%2B1", "debug=99999999999999999999", "x=%&debug=1"]
    {
        assert_eq!(request(query), form(TEXT), "{query}");
    }
}

#[test]
fn seconds_are_checked_in_the_order_of_go() {
    let over = |seconds| {
        Ok(ProfileRequest {
            over: Some(Duration::from_secs(seconds)),
            publish: false,
            form: PROTO,
            view: View::default(),
            goroutines: None,
        })
    };
    assert_eq!(request("seconds=5"), over(5));
    assert_eq!(request("seconds=600&debug=0"), over(600));
    assert_eq!(request("seconds=1&debug=x"), over(1));
    // `gc` is ignored beside `seconds`.
    assert_eq!(request("seconds=1&gc=1"), over(1));
    let bad = |message: &str| Err(Refusal::bad_request(message));
    for value in ["0", "-1", "x", "1.5", "1s", "%20", "0x1", "99999999999999999999", "NaN"] {
        let expected = bad("invalid value for \"seconds\" - must be a positive integer");
        assert_eq!(request(&format!("seconds={value}&debug=1")), expected, "{value}");
    }
    assert_eq!(
        request("seconds=601"),
        bad("\"seconds\" is 601, but this server captures for at most 600 (Config::max_seconds)")
    );
    // The message has every digit of the number.
    let longest =
        "\"seconds\" is 9223372036854775807, but this server captures for at most 600 (Config::max_seconds)";
    assert_eq!(request("seconds=9223372036854775807"), bad(longest));
    assert_eq!(request("seconds=1&debug=1"), bad("seconds and debug params are incompatible"));
    let own = RequestedProfile {
        name: "app/files",
        has_delta: false,
        has_dump: false,
        sample_types: &["app/files"],
        default_sample_type: 0,
    };
    let unsupported = bad("\"seconds\" parameter is not supported for this profile type");
    assert_eq!(request_of(&own, "seconds=1&debug=1", LIMITS), unsupported);
    // An empty value counts as absent.
    assert_eq!(request("seconds="), form(PROTO));
}

#[test]
fn gc_is_the_heaps() {
    let published = Ok(ProfileRequest {
        over: None,
        publish: true,
        form: PROTO,
        view: View::default(),
        goroutines: None,
    });
    assert_eq!(request("gc=1"), published);
    assert_eq!(request("gc=99999999999999999999"), published);
    for query in ["gc=0", "gc=-1", "gc=x", "gc="] {
        assert_eq!(request(query), form(PROTO), "{query}");
    }
    assert_eq!(request_of(&RequestedProfile { name: "allocs", ..HEAP }, "gc=1", LIMITS), form(PROTO));
}

#[test]
fn forms_of_our_own() {
    assert_eq!(request("format=collapsed"), form(Form::Collapsed(3)));
    assert_eq!(request("format=flamegraph&sample_index=alloc_space"), form(Form::FlameGraph(1)));
    assert_eq!(request("format=collapsed&sample_index=0"), form(Form::Collapsed(0)));
    assert_eq!(request("format=top"), form(Form::Top(3)));
    assert_eq!(request("symbolize=none"), form(Form::Proto(Names::None)));
    assert_eq!(request("symbolize=none&debug=1"), form(Form::Text(Names::None)));
    let lean = Limits { symbolize: false, ..LIMITS };
    assert_eq!(request_of(&HEAP, "", lean), form(Form::Proto(Names::None)));
    assert_eq!(request_of(&HEAP, "symbolize=full", lean), form(Form::Proto(Names::All)));
    let over = request("format=flamegraph&seconds=2").unwrap();
    assert_eq!((over.over, over.form), (Some(Duration::from_secs(2)), Form::FlameGraph(3)));
    for (query, message) in [
        ("format=svg", "invalid value for \"format\" - must be \"top\", \"collapsed\" or \"flamegraph\""),
        ("format=collapsed&debug=1", "format and debug params are incompatible"),
        ("symbolize=local", "invalid value for \"symbolize\" - must be \"none\" or \"full\""),
        (
            "format=collapsed&sample_index=cpu",
            "invalid value for \"sample_index\" - heap has alloc_objects, alloc_space, inuse_objects, inuse_space",
        ),
        (
            "format=collapsed&sample_index=4",
            "invalid value for \"sample_index\" - heap has alloc_objects, alloc_space, inuse_objects, inuse_space",
        ),
    ] {
        assert_eq!(request(query), Err(Refusal::bad_request(message)), "{query}");
    }
}

#[test]
fn a_view_of_a_profile() {
    let block = RequestedProfile {
        name: "block",
        sample_types: &["contentions", "delay"],
        default_sample_type: 1,
        ..HEAP
    };
    let view = |query: &str| request_of(&block, query, LIMITS).map(|request| request.view);
    let of_program = View { from_program: true, ..View::default() };
    assert_eq!(view("leaf=program"), Ok(of_program));
    assert_eq!(request("leaf=program&debug=1").unwrap().view, of_program);
    for (query, kinds) in [
        ("kinds=", None),
        ("kinds=sync", Some(BlockKinds::SYNC)),
        ("kinds=join,await", Some(BlockKinds::JOIN | BlockKinds::AWAIT)),
        (
            "kinds=network,%20sleep,syscall",
            Some(BlockKinds::NETWORK | BlockKinds::SLEEP | BlockKinds::SYSCALL),
        ),
    ] {
        assert_eq!(view(query), Ok(View { kinds, ..View::default() }), "{query}");
    }
    let all = "invalid value for \"kinds\" - must be some of sync,join,network,syscall,sleep,await";
    for (query, message) in [
        ("leaf=main", "invalid value for \"leaf\" - must be \"program\""),
        ("kinds=SYNC", all),
        ("kinds=all", all),
        ("kinds=sync,,join", all),
        ("kinds=lock", all),
    ] {
        assert_eq!(view(query), Err(Refusal::bad_request(message)), "{query}");
    }
    let only_block = Refusal::bad_request("\"kinds\" is a parameter of block only");
    assert_eq!(request("kinds=sync"), Err(only_block));
}

#[test]
fn goroutines_are_chosen_in_their_own_forms() {
    let goroutine = RequestedProfile {
        name: "goroutine",
        has_dump: true,
        sample_types: &["goroutine"],
        default_sample_type: 0,
        ..HEAP
    };
    let request = |query: &str| request_of(&goroutine, query, LIMITS);
    assert_eq!(request("format=groups").map(|request| request.form), Ok(Form::Groups(Names::InTime)));
    let chosen = request("debug=2&state=await,%20sync%20wait&show=app::.*pay").unwrap().goroutines.unwrap();
    assert_eq!(chosen.states, ["await", "sync wait"]);
    let show = chosen.filter().show.unwrap();
    assert!(show("app::orders::pay") && !show("app::orders::list"));
    assert_eq!(request("format=groups").unwrap().goroutines, None);
    let refused = |message: &str| Err(Refusal::bad_request(message));
    for query in ["show=x", "state=await", "debug=1&state=await", "format=top&show=x"] {
        let expected =
            "\"state\" and \"show\" are parameters of goroutine?debug=2 and goroutine?format=groups";
        assert_eq!(request(query), refused(expected), "{query}");
    }
    for query in [
        "show=(",
        "show=(.?.?.?.?.?.?.?.?){0,1000}zzz",
        "show=(([a-z:_]?){0,100}){0,100}zzz",
        "state=blah",
        "state=,",
        "state=await,",
    ] {
        assert!(request(&format!("debug=2&{query}")).is_err(), "{query}");
    }
    let groups =
        "invalid value for \"format\" - must be \"groups\", \"top\", \"collapsed\" or \"flamegraph\"";
    assert_eq!(request("format=svg"), refused(groups));
    // Others have no groups.
    assert!(request_of(&HEAP, "format=groups", LIMITS).is_err());
}

#[test]
fn startup_frames_are_shown_by_number() {
    for (query, shown) in
        [("", false), ("startup=0", false), ("startup=x", false), ("startup=1&debug=1", true)]
    {
        assert_eq!(request(query).unwrap().view.startup_frames, shown, "{query}");
    }
}
