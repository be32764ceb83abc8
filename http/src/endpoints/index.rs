//! The index page: the available profiles, totals of the process, and the parameters of requests.

use std::fmt::Write as _;

use rtprof_pprof_out::{CPU, Profile, profiles, scraped_deltas};
use rtprof_profiler::{contention, cpu, mem, rate};
use rtprof_runtime::counters;
use rtprof_runtime::process::own_files;
use rtprof_runtime::stack::{StackMode, stack_mode};
use rtprof_trace_out::FlightRecorder;

use crate::answer;
use crate::body::Body;
use crate::endpoints::html::{escaped, path_part};
use crate::endpoints::process::Process;
use crate::request::route::delta_name;
use crate::work::response_writer::{Failure, ResponseWriter};

const STYLE: &str = include_str!("../pages/index.css");

/// Writes the page; `cmdline` says whether the program's arguments are shown.
pub(crate) fn answer(response: &mut ResponseWriter, cmdline: bool) -> Result<(), Failure> {
    response.charge()?;
    let page = page(cmdline);
    response.begin(move |_| answer::page(Body::whole(page)))?;
    Ok(())
}

fn page(cmdline: bool) -> String {
    let mut page = String::with_capacity(16 << 10);
    page.push_str("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n");
    page.push_str("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
    let program = escaped(&own_files::program());
    let _ = writeln!(page, "<title>{program}: /debug/pprof/</title>\n<style>\n{STYLE}</style></head><body>");
    let _ = writeln!(
        page,
        "<header><h1>/debug/pprof/</h1><p>{program}, process {}; set debug=1 as a query parameter to read a profile as \
         text</p></header>",
        std::process::id()
    );
    table(&mut page, cmdline);
    totals(&mut page);
    dropped(&mut page);
    page.push_str(PARAMETERS);
    let deltas: Vec<String> = scraped_deltas().map(delta_name).collect();
    let _ = writeln!(
        page,
        "<p class=\"note\">Scrapers ask for {}: what was added since they last did.</p>",
        deltas.join(", ")
    );
    page.push_str("</body></html>\n");
    page
}

fn table(page: &mut String, cmdline: bool) {
    page.push_str("<h2>Types of profiles available</h2>\n<table class=\"profiles\">\n");
    page.push_str(
        "<thead><tr><th>Count</th><th>Profile</th><th>Look at it</th><th></th></tr></thead>\n<tbody>\n",
    );
    for profile in profiles() {
        row(page, &profile);
    }
    let flight = FlightRecorder::current().is_some();
    let recorder = if flight { "" } else { " Off; FlightRecorder::start enables it." };
    let arguments = if cmdline { "" } else { " Off; Config::cmdline allows it." };
    let (cpu, description) = (CPU.name(), CPU.description());
    let _ = writeln!(
        page,
        "<tr><td></td><td><a href=\"{cpu}\">{cpu}</a></td><td>\
         <a href=\"{cpu}?format=flamegraph&amp;seconds=5\">flame graph of the next 5 s</a> \
         <a href=\"{cpu}?format=top&amp;seconds=5\">top</a> \
         <a href=\"{cpu}?format=collapsed&amp;seconds=5\">collapsed</a></td>\
         <td>CPU profile, for seconds= (30). {description}</td></tr>"
    );
    for (name, is_on, description) in [
        ("cmdline", cmdline, format!("The program and its arguments.{arguments}")),
        (
            "trace",
            true,
            "Execution trace, for seconds= (1). Open it with go tool trace. \
             With hz=100 it has samples of the processor. \
             <a href=\"trace?format=perfetto&amp;seconds=5\">Of the next 5 s for Perfetto</a>: open it in \
             https://ui.perfetto.dev, which keeps it in the browser."
                .into(),
        ),
        (
            "flight",
            flight,
            format!(
                "Execution trace of the last seconds, in the format that the program has chosen, if it has \
                 enabled a flight recorder.{recorder}"
            ),
        ),
        ("symbol", true, "Names of addresses (0x..+0x..), for readers of a profile without names.".into()),
    ] {
        let shown = if is_on { format!("<a href=\"{name}\">{name}</a>") } else { name.to_owned() };
        let _ = writeln!(page, "<tr><td></td><td>{shown}</td><td></td><td>{description}</td></tr>");
    }
    page.push_str("</tbody></table>\n");
}

fn row(page: &mut String, profile: &Profile) {
    let (name, link) = (escaped(profile.name()), path_part(profile.name()));
    let _ = write!(
        page,
        "<tr><td>{}</td><td><a href=\"{link}?debug=1\">{name}</a></td><td>\
         <a href=\"{link}?format=flamegraph\">flame graph</a> <a href=\"{link}?format=top\">top</a> \
         <a href=\"{link}?debug=1\">text</a> \
         <a href=\"{link}?format=collapsed\">collapsed</a> <a href=\"{link}\" download=\"{name}.pb.gz\">file</a>",
        profile.count(),
    );
    if profile.has_dump() {
        let _ = write!(
            page,
            " <a href=\"{link}?format=groups\">equal stacks as one</a> <a href=\"{link}?debug=2\">each by itself</a>"
        );
    } else if profile.is_built_in() {
        let _ = write!(page, " <a href=\"{link}?format=flamegraph&amp;seconds=5\">next 5 s</a>");
    }
    let _ = writeln!(page, "</td><td>{}</td></tr>", profile.description());
}

/// Describes the budget of the block and mutex profiles, and the rates that it has led to.
fn budget(percent: f64) -> String {
    let [block, mutex] = contention::raised_rates();
    let mut text = format!("{percent} % of the processor time");
    if let Some(rate) = block {
        let _ = write!(text, "; block: one sample in {} ns now, {} ns at most", rate.now, rate.most);
    }
    if let Some(fraction) = mutex {
        let _ = write!(text, "; mutex: one in {} now, {} at most", fraction.now, fraction.most);
    }
    text
}

fn totals(page: &mut String) {
    let process = Process::read();
    let unknown = || "not known here".to_owned();
    let rate = rate::mem_profile_rate();
    let (stacks, bytes) = mem::stacks_in_use();
    let off = |is_on: bool, text: String| if is_on { text } else { "off".to_owned() };
    let (block, fraction) = (contention::block_profile_rate(), contention::set_mutex_profile_fraction(-1));
    let live = match rate {
        0 => "not sampled (the rate is 0)".to_owned(),
        _ => mebibytes(mem::live_heap_estimate()),
    };
    let rows = [
        (
            "Live heap, estimated",
            live,
            match rate != 0 && stacks == 0 {
                true => "nothing was sampled yet; check that a ProfAlloc is the #[global_allocator]",
                false => "what came through the program's #[global_allocator] and is not freed",
            },
        ),
        (
            "Resident (RSS)",
            process.resident.map_or_else(unknown, mebibytes),
            "more than the heap by code, stacks, mappings, C libraries' own memory, and what the allocator keeps free",
        ),
        (
            "Threads",
            process.threads.map_or_else(unknown, |threads| threads.to_string()),
            "those named rtprof-http are this server's",
        ),
        (
            "Heap profile rate",
            off(rate != 0, format!("one sample in {rate} bytes")),
            "set_mem_profile_rate; smaller is finer and costs more, 1 is everything, 0 nothing",
        ),
        (
            "Block profile rate",
            off(block != 0, format!("one sample in {block} ns of waiting")),
            "set_block_profile_rate; 1 is every wait, 0 nothing",
        ),
        (
            "Mutex profile fraction",
            off(fraction != 0, format!("one contended unlock in {fraction}")),
            "set_mutex_profile_fraction; 1 is every one, 0 nothing",
        ),
        (
            "Budget of these two",
            contention::profile_budget().map_or_else(|| "none".to_owned(), budget),
            "set_profile_budget; while events are too frequent for it, threads sample at larger rates",
        ),
        (
            "CPU samples are taken",
            cpu::probe().map_or_else(unknown, |by| format!("by {by}")),
            "of profile, 100 in a second of a thread's processor time; see docs/cpu.md",
        ),
        (
            "Stacks are walked",
            match stack_mode() {
                StackMode::FramePointers => "along frame pointers".to_owned(),
                _ => "by unwind tables".to_owned(),
            },
            match stack_mode() {
                StackMode::FramePointers => "the cheaper way",
                _ => "along frame pointers would be cheaper: build with -C force-frame-pointers=yes",
            },
        ),
        (
            "Heap stacks kept",
            format!("{stacks}, in {}", mebibytes(bytes as u64)),
            "distinct ones; set_max_stacks limits them",
        ),
    ];
    page.push_str("<h2>This process</h2>\n<dl class=\"totals\">\n");
    for (name, value, remark) in rows {
        let _ = writeln!(
            page,
            "<dt>{name}</dt><dd><b>{}</b> <span>{}</span></dd>",
            escaped(&value),
            escaped(remark)
        );
    }
    page.push_str("</dl>\n");
}

/// Writes the list of losses: samples that are missing from the profiles.
fn dropped(page: &mut String) {
    let sentences = counters::all_sentences();
    page.push_str("<h2>Dropped</h2>\n");
    if sentences.is_empty() {
        page.push_str("<p>Nothing: every sample has its place.</p>\n");
        return;
    }
    page.push_str("<ul class=\"dropped\">\n");
    for sentence in sentences {
        let _ = writeln!(page, "<li>{}</li>", escaped(&sentence));
    }
    page.push_str("</ul>\n");
}

/// Formats a size with one decimal.
fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

const PARAMETERS: &str = r#"<h2>Parameters</h2>
<dl class="parameters">
<dt>debug=1</dt><dd>the profile as text; without it, profile.proto for <code>go tool pprof</code></dd>
<dt>debug=2</dt><dd>of goroutine and goroutineleak, each by itself with its name and for how long it has waited, as a Go program that panics prints them</dd>
<dt>seconds=N</dt><dd>what is added in the next N seconds, instead of all since the program began; profiles that the program itself has added do not have this</dd>
<dt>gc=1</dt><dd>of heap, for Go's tools; it makes a difference only in programs that use rtprof::collector</dd>
<dt>format=flamegraph</dt><dd>a page to look at, without a network</dd>
<dt>format=top</dt><dd>a table of functions as text: their own value (flat), that of all stacks with them (cum), and the line that
has most of it</dd>
<dt>format=collapsed</dt><dd>a line for each stack, for flame graph tools</dd>
<dt>sample_index=NAME</dt><dd>with format=flamegraph, top or collapsed, the value to show: alloc_space, inuse_objects, delay, ..</dd>
<dt>format=groups</dt><dd>of goroutine and goroutineleak, goroutines with equal stacks as one: first tasks whose thread waits,
then the other tasks, then threads</dd>
<dt>state=await,sleep</dt><dd>of goroutine with debug=2 or format=groups, those in these states, in the words of debug=2</dd>
<dt>show=REGEX</dt><dd>of goroutine with debug=2 or format=groups, those with a match in a function's name, a source file, or the name of
the task or thread</dd>
<dt>leaf=program</dt><dd>stacks begin at the program's own code: functions of libraries that it calls are hidden, and stacks
without any code of the program are left out and counted; of profile too</dd>
<dt>kinds=sync,join</dt><dd>of block, only waits of these kinds: sync (locks, conditions, channels), join, await (async tasks), and
where set_block_profile_kinds adds them network, syscall and sleep</dd>
<dt>symbolize=full</dt><dd>all names, however long it takes to find them; without it a file has those that are found within
6 s, or 2 s after its seconds</dd>
<dt>hz=N</dt><dd>of profile, N samples in a second of a thread's processor time instead of 100; of trace, with so many
samples in it (without it, with those of a profile that is taken meanwhile)</dd>
<dt>format=perfetto</dt><dd>of trace, for Perfetto instead of Go</dd>
<dt>format=v1</dt><dd>of trace, for Go before 1.26: v1 is read by Go 1.19 and later, v2-go1.22 by Go 1.22 and later, and v2, which
you get without it, by Go 1.26 and later</dd>
<dt>gzip=1</dt><dd>of trace and flight, a compressed file, which Perfetto reads too; a client that sends Accept-Encoding: gzip
gets it compressed on the way</dd>
<dt>threads=1</dt><dd>of profile, with the number and the name of each thread as labels of its samples</dd>
<dt>startup=1</dt><dd>with the frames that std runs between the beginning of a thread and your first function; of trace too</dd>
<dt>symbolize=none</dt><dd>addresses only; <code>go tool pprof</code> asks for their names at symbol</dd>
</dl>
"#;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_profile_is_there() {
        let own = Profile::new("test/<b>index</b>").unwrap();
        own.add(1, 0).unwrap();
        // The list is taken before the page is made: another test may register a profile between the two.
        let listed = profiles();
        let page = page(false);
        for profile in listed {
            let row =
                format!("<a href=\"{}?debug=1\">{}</a>", path_part(profile.name()), escaped(profile.name()));
            assert!(page.contains(&row), "{row}");
        }
        assert!(
            page.contains("<td>1</td><td><a href=\"test%2F%3Cb%3Eindex%3C%2Fb%3E?debug=1\">test/&lt;b&gt;")
        );
        assert!(page.contains("goroutine?debug=1"));
        assert!(page.contains("delta_block, delta_heap, delta_mutex"));
        assert!(!page.contains("<b>index"), "names are escaped");
        // Deltas are not offered for the program's own profiles.
        assert!(page.contains("heap?format=flamegraph&amp;seconds=5"));
        assert!(!page.contains("%3C%2Fb%3E?format=flamegraph&amp;seconds"));
        own.remove(1);
    }

    #[test]
    fn every_row_has_its_description() {
        let page = page(true);
        let (_, rows) = page.split_once("<tbody>").unwrap();
        let (rows, _) = rows.split_once("</tbody>").unwrap();
        let descriptions: Vec<&str> =
            rows.split_terminator("</td></tr>").filter_map(|row| Some(row.rsplit_once("<td>")?.1)).collect();
        assert!(descriptions.iter().all(|description| !description.is_empty()), "{descriptions:#?}");
        for (name, description) in [
            (CPU.name(), "CPU profile, for seconds= (30)."),
            ("cmdline", "The program and its arguments."),
            ("trace", "Execution trace, for seconds= (1)."),
            ("flight", "Execution trace of the last seconds,"),
            ("symbol", "Names of addresses"),
        ] {
            let matches: Vec<_> = descriptions.iter().filter(|text| text.starts_with(description)).collect();
            assert_eq!(matches.len(), 1, "{name}: {descriptions:#?}");
        }
    }
}
