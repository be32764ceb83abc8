//! The contents of answers: the same numbers in every form, names or addresses, and the names of addresses.

use std::collections::{BTreeMap, HashMap};
use std::hint::black_box;

use rtprof::http::{Config, serve_with};
use test_support::profile::{ALLOC_OBJECTS, ALLOC_SPACE, Profile, Sample};
use test_support::web::{self, Connection};
use test_support::{child, contention, sample_types};

use super::{start, text};

#[inline(never)]
fn first_page() -> Vec<u8> {
    black_box(vec![1; 5000])
}

#[inline(never)]
fn write_a_book() -> Vec<Vec<u8>> {
    black_box((0..20).map(|_| first_page()).collect())
}

/// Records a workload completely. Nothing is recorded after it, so that the forms can be compared.
fn record() -> Vec<Vec<u8>> {
    rtprof::set_mem_profile_rate(1);
    let kept = write_a_book();
    drop(write_a_book());
    rtprof::set_mem_profile_rate(0);
    kept
}

/// Sums the samples by stack. Types in names are removed, because their semicolons would end a frame.
fn by_stack(samples: impl Iterator<Item = (Vec<String>, i64)>) -> BTreeMap<Vec<String>, i64> {
    let mut stacks = BTreeMap::new();
    for (stack, value) in samples {
        *stacks.entry(stack).or_default() += value;
    }
    stacks.retain(|_, &mut value| value != 0);
    stacks
}

#[test]
fn collapsed_stacks_are_those_of_the_profile() {
    child::isolated("collapsed_stacks_are_those_of_the_profile", || {
        let _kept = record();
        let address = start();
        for (index, kind) in [(ALLOC_OBJECTS, "alloc_objects"), (ALLOC_SPACE, "alloc_space")] {
            let lines = text(address, &format!("heap?format=collapsed&sample_index={kind}"));
            assert!(lines.ends_with('\n'));
            let told = by_stack(lines.lines().map(|line| {
                let (stack, value) = line.rsplit_once(' ').expect("a value ends a line");
                (stack.split(';').map(str::to_owned).collect(), value.parse().expect("a number"))
            }));
            let samples = web::profile(address, "heap").samples();
            let expected = by_stack(samples.iter().map(|sample| {
                let names = sample.frames.iter().rev().map(|frame| frame.function.replace(';', ","));
                (names.collect(), sample.values[index])
            }));
            assert!(expected.len() > 1);
            assert_eq!(told, expected, "{kind}");
            assert_eq!(text(address, &format!("heap?format=collapsed&sample_index={index}")), lines);
        }
        // The profile's own sample type, with which `go tool pprof` opens it.
        let own = text(address, "allocs?format=collapsed");
        assert_eq!(own, text(address, "heap?format=collapsed&sample_index=alloc_space"));
        let book =
            own.lines().filter(|line| line.contains("write_a_book;") && line.contains("::first_page "));
        let book: Vec<_> = book.map(|line| line.rsplit_once(' ').expect("a value").1).collect();
        assert_eq!(book, ["100000"; 2], "two lines of `record` have written one: {own}");
        let in_use = text(address, "heap?format=collapsed");
        assert!(
            in_use.lines().any(|line| line.contains("first_page") && line.ends_with(" 100000")),
            "{in_use}"
        );
    });
}

#[test]
fn the_flame_graph_has_the_whole_profile() {
    child::isolated("the_flame_graph_has_the_whole_profile", || {
        let _kept = record();
        let address = start();
        let page = text(address, "allocs?format=flamegraph");
        let data = page.split_once("type=\"application/json\">").expect("it has its data").1;
        let data = data.split_once("</script>").expect("they end").0;
        let data: serde_json::Value = serde_json::from_str(data).expect("they are JSON");
        assert_eq!((&data["name"], &data["type"]), (&"allocs".into(), &ALLOC_SPACE.into()));
        let nodes: Vec<i64> = serde_json::from_value(data["nodes"].clone()).expect("they are numbers");
        // A node is an index of its parent, an index of its function and four values.
        assert_eq!(nodes.len() % 6, 0);
        let samples = web::profile(address, "allocs").samples();
        for index in [ALLOC_OBJECTS, ALLOC_SPACE] {
            let told: i64 = nodes.chunks(6).map(|node| node[2 + index]).sum();
            assert_eq!(told, samples.iter().map(|sample| sample.values[index]).sum::<i64>());
        }
        let name = |node: &[i64]| data["functions"][node[1] as usize][0].as_str().expect("a name").to_owned();
        let page: Vec<_> = nodes.chunks(6).filter(|node| name(node).ends_with("::first_page")).collect();
        let parents = page.iter().map(|node| {
            let parent = &nodes[node[0] as usize * 6..][..6];
            name(parent)
        });
        assert!(!page.is_empty());
        for parent in parents {
            assert!(parent.contains("write_a_book"), "{parent}");
        }
    });
}

/// A profile that is off is empty but valid, so that a scraper does not take it for a failure.
#[test]
fn what_is_off_is_empty_and_valid() {
    child::isolated("what_is_off_is_empty_and_valid", || {
        rtprof::set_mem_profile_rate(0);
        contention::record_nothing();
        let address = start();
        for name in ["block", "mutex"] {
            for target in [name.to_owned(), format!("{name}?seconds=1"), format!("{name}?symbolize=none")] {
                let profile = web::profile(address, &target);
                assert!(profile.sample.is_empty(), "{target}");
                assert_eq!(profile.sample_types(), sample_types::of(name), "{target}");
                assert!(profile.time_nanos > 0, "{target}");
            }
            assert_eq!(text(address, &format!("{name}?format=collapsed")), "", "{name}");
            assert!(text(address, &format!("{name}?format=flamegraph")).contains("</html>"), "{name}");
        }
        // The profile has no samples but those from the time before the rate was 0.
        assert_eq!(web::profile(address, "heap").sample_type.len(), 4);
    });
}

#[test]
fn addresses_have_names_at_symbol() {
    child::isolated("addresses_have_names_at_symbol", || {
        let _kept = record();
        let address = start();
        let named = web::profile(address, "heap");
        let bare = web::profile(address, "heap?symbolize=none");
        assert!(bare.function.is_empty() && bare.location.iter().all(|location| location.line.is_empty()));
        assert!(bare.mapping.iter().all(|mapping| !mapping.has_functions), "pprof would not ask for names");
        assert!(bare.mapping.iter().any(|mapping| mapping.build_id != 0), "by which binaries are found");
        let sum = |profile: &Profile| {
            profile.samples().iter().map(|sample| sample.values[ALLOC_SPACE]).sum::<i64>()
        };
        assert_eq!(sum(&bare), sum(&named));

        // The request of `go tool pprof`.
        let addresses: Vec<_> =
            bare.location.iter().map(|location| format!("{:#x}", location.address)).collect();
        let asked = addresses.join("+");
        let ask = |headers: &[&str], body: &str| {
            let request = web::request(address, "POST", "/debug/pprof/symbol", headers, body);
            web::exchange(address, request).expect("an answer").text().to_owned()
        };
        let posted = ask(&[], &asked);
        // For a profile whose name has a slash, `go tool pprof` sends the request there.
        let beside = web::request(address, "POST", "/debug/pprof/app/symbol", &[], &asked);
        assert_eq!(web::exchange(address, beside).expect("an answer").text(), posted);
        assert_eq!(text(address, &format!("symbol?{asked}")), posted, "the other way to ask");
        let names: HashMap<_, _> =
            posted.lines().skip(1).map(|line| line.split_once(' ').expect("an address and a name")).collect();
        assert!(posted.starts_with("num_symbols: 1\n"));
        assert_eq!(names.len(), addresses.len(), "{posted}");
        // The name of an address is that of the function that contains the code, the outermost one of those inlined
        // there.
        for location in &named.location {
            let Some(line) = location.line.last() else { continue };
            let function = named.function.iter().find(|function| function.id == line.function_id);
            let name = named.text(function.expect("a line has its function").name);
            assert_eq!(names.get(&*format!("{:#x}", location.address)), Some(&name));
        }
        assert!(names.values().any(|name| name.ends_with("::first_page")), "{posted}");

        let (first, rest) = asked.split_at(asked.find('+').expect("more than one") + 1);
        let chunked = format!("{:x}\r\n{first}\r\n{:x}\r\n{rest}\r\n0\r\n\r\n", first.len(), rest.len());
        let head =
            "POST /debug/pprof/symbol HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
        let answer = web::exchange(address, format!("{head}{chunked}")).expect("an answer");
        assert_eq!(answer.text(), posted, "in pieces");
        let mut connection = Connection::open(address).expect("it listens");
        let length = asked.len();
        let head = format!(
            "POST /debug/pprof/symbol HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\nExpect: 100-continue\r\n\r\n"
        );
        connection.send(head).expect("it reads");
        assert_eq!(connection.head().expect("a go-ahead").status, 100, "curl waits for it");
        connection.send(&asked).expect("it reads");
        assert_eq!(connection.receive(false).expect("an answer").text(), posted);
    });
}

#[test]
fn symbol_has_limits() {
    child::isolated("symbol_has_limits", || {
        let address = start();
        let here = symbol_has_limits as fn() as usize;
        let line = format!("{here:#x} {}::symbol_has_limits\n", module_path!());
        let ask = |body: &str| {
            let request = web::request(address, "POST", "/debug/pprof/symbol", &[], body);
            let answer = web::exchange(address, request).expect("an answer");
            assert_eq!(answer.status, 200);
            answer.text().to_owned()
        };
        assert_eq!(
            ask(&format!("{here:#x}+{here}+0+x+0x1+{here:#X}")),
            format!("num_symbols: 1\n{line}{line}{line}")
        );
        // The part read of a word that is too long, and all that follows, are left out.
        let full = "reading request: bufio: buffer full\n";
        assert_eq!(
            ask(&format!("{here}+{}+{here}", "1".repeat(5000))),
            format!("num_symbols: 1\n{line}{full}")
        );
        let word = format!("{here:#x}+");
        let large = "reading request: http: request body too large\n";
        let answer = ask(&word.repeat((1 << 20) / word.len() + 1));
        assert_eq!(answer.lines().count(), (1 << 20) / word.len() + 2);
        assert!(answer.ends_with(large), "{}", &answer[answer.len() - 100..]);
        let answer = ask(&(word + &"+".repeat(3 << 20)));
        assert_eq!(answer, format!("num_symbols: 1\n{line}{large}"));
    });
}

/// A server that does not read debug information unless a request asks for names.
#[test]
fn a_server_without_names() {
    child::isolated("a_server_without_names", || {
        let _kept = record();
        let config = Config { symbolize: false, ..Config::default() };
        let address = serve_with("127.0.0.1:0", config).expect("a port is free").local_addr();
        for target in
            ["heap", "allocs", "threadcreate", "delta_heap", "heap?symbolize=none", "heap?seconds=1"]
        {
            let answer = web::get(address, &format!("/debug/pprof/{target}"));
            assert!(Profile::read(&answer.body).function.is_empty(), "{target}");
        }
        let samples = web::profile(address, "heap?symbolize=full").samples_of("first_page");
        assert_eq!(samples.iter().map(|sample| sample.values[ALLOC_OBJECTS]).sum::<i64>(), 40);
        assert!(!text(address, "heap?debug=1").contains("first_page"));
        assert!(text(address, "heap?debug=1&symbolize=full").contains("first_page"));
        // A flame graph of addresses would be useless.
        assert!(text(address, "heap?format=collapsed").contains("first_page"));
        assert!(text(address, "heap?format=flamegraph").contains("first_page"));
    });
}

/// The server's own allocations can be told from the program's, and an export's allocations are in no profile.
#[test]
fn the_servers_own_memory_is_labelled() {
    child::isolated("the_servers_own_memory_is_labelled", || {
        rtprof::set_mem_profile_rate(1);
        let address = start();
        for target in [
            "",
            "heap",
            "heap?debug=1",
            "heap?format=flamegraph",
            "allocs?seconds=1",
            "delta_heap",
            "symbol?0x1",
        ] {
            assert_eq!(web::get(address, &format!("/debug/pprof/{target}")).status, 200);
        }
        let samples = web::profile(address, "heap").samples();
        let ours = |function: &str| {
            ["hyper::", "tokio::", "rtprof_http::", "mio::"].iter().any(|name| function.contains(name))
        };
        let of_the_server: Vec<_> =
            samples.iter().filter(|sample| sample.frames.iter().any(|frame| ours(&frame.function))).collect();
        assert!(of_the_server.len() > 10, "{}", of_the_server.len());
        for sample in of_the_server {
            let label = sample.labels.get("rtprof").map(String::as_str);
            assert_eq!(label, Some("http"), "{:#?}", sample.frames);
        }
        // Exceptions: the response writer's copy of a piece of the export, and the names and types of profiles that a request is
        // checked against.
        let of_an_export = |sample: &&Sample| {
            sample.has("rtprof_pprof_out::") && !sample.has("response_writer::ResponseWriter::write")
        };
        let sampled: Vec<_> = samples.iter().filter(of_an_export).collect();
        let largest =
            sampled.iter().map(|sample| sample.values[ALLOC_SPACE] / sample.values[ALLOC_OBJECTS].max(1));
        assert!(largest.max() < Some(512), "{sampled:#?}");
    });
}
