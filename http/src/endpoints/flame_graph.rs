//! The flame graph page: a profile as a tree of stacks, in one file that needs no network.

use std::io::{self, BufWriter, Write};
use std::time::Duration;

use rtprof_pprof_out::{CallTree, Snapshot, Symbolization};
use rtprof_runtime::hook::{self, Untracked};
use rtprof_runtime::process::own_files;
use serde_json::{Value, json};

use crate::body::MAX_PIECE;
use crate::endpoints::html;

/// The page, with placeholders for the title and the profile.
const TEMPLATE: &str = include_str!("../pages/flamegraph.html");
const PROFILE: &str = "{{profile}}";
const TITLE: &str = "{{title}}";
const PROGRAM: &str = "{{program}}";

/// The beginning of the visible part.
const BODY: &str = "<body>\n";
/// The content shown while the profile is being recorded, with a placeholder for the length of the recording.
const RECORDING: &str = include_str!("../pages/recording.html");
const LENGTH: &str = "{{length}}";
/// Hides that content. (A script would first have to find it.)
const RECORDED: &str = "<style>#recording { display: none; }</style>\n";

/// Returns the template up to the visible part.
fn head() -> &'static str {
    let (head, _) = TEMPLATE.split_once(BODY).expect("the template has a body");
    &TEMPLATE[..head.len() + BODY.len()]
}

/// Fills the placeholders of a part of the template, except the profile's.
fn filled(part: &str, title: &str) -> String {
    part.replace(PROGRAM, &html::escaped(&own_files::program())).replace(TITLE, title)
}

/// A page that is ready to be written.
pub(crate) struct Page {
    tree: CallTree,
    /// All data but functions and nodes.
    head: Value,
    title: String,
}

impl Page {
    /// Makes the page of a profile, with the names that are known. The page shows the sample type `sample_type` first.
    pub(crate) fn of(snapshot: &Snapshot, sample_type: usize) -> Self {
        // Like the other exports this one takes some megabytes, which must appear in no profile.
        let _workspace = hook::workspace();
        let tree = snapshot.call_tree(Symbolization::Known);
        let (time_nanos, duration_nanos) = snapshot.time_and_duration_nanos();
        let mut comments = [snapshot.comments(), &tree.comments].concat();
        if tree.folded > 0 {
            comments.push(format!(
                "rtprof: {} frames are too small to be seen and are counted with their callers",
                tree.folded
            ));
        }
        let head = json!({
            "name": snapshot.name(),
            "types": snapshot.sample_types(),
            "type": sample_type,
            "time_nanos": time_nanos,
            "duration_nanos": duration_nanos,
            "comments": comments,
        });
        Self { tree, head, title: html::escaped(snapshot.name()) }
    }

    /// Writes the page piece by piece: as one text it would take several times the tree's memory.
    pub(crate) fn write(&self, w: &mut dyn Write) -> io::Result<()> {
        w.write_all(filled(head(), &self.title).as_bytes())?;
        self.write_body(w)
    }

    /// Writes the beginning of a page whose profile is still being recorded. The page shows its name, and for how long
    /// the recording takes.
    pub(crate) fn write_beginning(name: &str, length: Duration, w: &mut dyn Write) -> io::Result<()> {
        let text = filled(head(), &html::escaped(name)) + &filled(RECORDING, &html::escaped(name));
        let seconds = length.as_secs();
        let plural = if seconds == 1 { "" } else { "s" };
        w.write_all(text.replace(LENGTH, &format!("{seconds} second{plural}")).as_bytes())
    }

    /// Writes the rest of a page that [`write_beginning`](Self::write_beginning) has begun.
    pub(crate) fn write_rest(&self, w: &mut dyn Write) -> io::Result<()> {
        w.write_all(RECORDED.as_bytes())?;
        self.write_body(w)
    }

    /// Writes the rest of a page that [`write_beginning`](Self::write_beginning) has begun, when there is no profile to
    /// show.
    pub(crate) fn write_failure(error: &str, w: &mut dyn Write) -> io::Result<()> {
        let error = html::escaped(error);
        w.write_all(
            format!("{RECORDED}<p class=\"recording\" role=\"alert\">{error}</p>\n</body></html>\n")
                .as_bytes(),
        )
    }

    fn write_body(&self, w: &mut dyn Write) -> io::Result<()> {
        let workspace = hook::workspace();
        let mut w = BufWriter::with_capacity(MAX_PIECE, Lifted(w, &workspace));
        let body = &TEMPLATE[head().len()..];
        let (before, after) = body.split_once(PROFILE).expect("the template has a place for the profile");
        w.write_all(filled(before, &self.title).as_bytes())?;
        self.write_data(&mut w)?;
        w.write_all(filled(after, &self.title).as_bytes())?;
        w.flush()
    }

    /// Writes the profile in the form that the page's script reads.
    fn write_data(&self, w: &mut impl Write) -> io::Result<()> {
        let head = html::script_safe(&self.head.to_string());
        let open = head.strip_suffix('}').unwrap_or(&head);
        write!(w, "{open},\"functions\":[")?;
        for (at, (name, file)) in self.tree.functions.iter().enumerate() {
            let pair = json!([&**name, &**file]).to_string();
            write!(w, "{}{}", if at > 0 { "," } else { "" }, html::script_safe(&pair))?;
        }
        // Parent, function and values of each node, one after the other, take a third of the size of objects.
        write!(w, "],\"nodes\":[")?;
        let types = self.tree.values.len() / self.tree.nodes.len().max(1);
        for (at, node) in self.tree.nodes.iter().enumerate() {
            let parent = node.parent.map_or(-1, i64::from);
            write!(w, "{}{parent},{}", if at > 0 { "," } else { "" }, node.function)?;
            for value in &self.tree.values[at * types..][..types] {
                write!(w, ",{value}")?;
            }
        }
        write!(w, "]}}")
    }
}

/// A foreign writer, whose allocations are sampled as the program's.
struct Lifted<'a>(&'a mut dyn Write, &'a Untracked);

impl Write for Lifted<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Self(w, untracked) = self;
        untracked.lifted(|| w.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        let Self(w, untracked) = self;
        untracked.lifted(|| w.flush())
    }
}

#[cfg(test)]
mod tests {
    use rtprof_pprof_out::Profile;

    use super::*;

    #[test]
    fn the_template_has_its_places() {
        assert_eq!(TEMPLATE.matches(PROFILE).count(), 1);
        assert!(TEMPLATE.contains(TITLE));
        for external in ["http://", "https://", "src=", "@import", "url(", "fetch(", "XMLHttpRequest"] {
            assert!(!TEMPLATE.contains(external), "{external}");
        }
    }

    #[test]
    fn a_profile_reads_back() {
        let profile = Profile::new("test/<script>'&\"").unwrap();
        for key in 0..3 {
            profile.add(key, 0).unwrap();
        }
        let mut page = Vec::new();
        let snapshot = profile.snapshot().unwrap();
        // The names are known from then on.
        snapshot.write_proto(std::io::sink(), Symbolization::Full).unwrap();
        Page::of(&snapshot, 0).write(&mut page).unwrap();
        let page = String::from_utf8(page).unwrap();
        assert!(!page.contains("test/<script>"), "names are escaped");
        assert!(page.contains("test/&lt;script&gt;&#39;&amp;&quot;"));
        let (_, rest) = page.split_once("type=\"application/json\">").unwrap();
        let (json, _) = rest.split_once("</script>").unwrap();
        let data: serde_json::Value = serde_json::from_str(json).unwrap();
        assert_eq!(data["name"], "test/<script>'&\"");
        assert_eq!(data["types"], json!([["test/<script>'&\"", "count"]]));
        let nodes: Vec<i64> = serde_json::from_value(data["nodes"].clone()).unwrap();
        assert_eq!(nodes.len() % 3, 0);
        assert_eq!(nodes[0], -1);
        let total: i64 = nodes.chunks(3).map(|node| node[2]).sum();
        assert_eq!(total, 3);
        let functions = data["functions"].as_array().unwrap();
        assert!(nodes.chunks(3).all(|node| (node[1] as usize) < functions.len()));
        assert!(functions.iter().any(|function| {
            function[0].as_str().unwrap().ends_with("tests::a_profile_reads_back")
                && function[1].as_str().unwrap().ends_with("flame_graph.rs")
        }));
    }
}
