//! The flame graph page: a profile as a tree of stacks, in one file that needs no network.

use rtprof_pprof_out::{CallTree, Snapshot};
use rtprof_profiler::sampling;
use serde_json::json;

use crate::html;

/// With places for the title and the profile.
const TEMPLATE: &str = include_str!("pages/flamegraph.html");

/// The page of a profile that shows this sample type first.
pub(crate) fn page(snapshot: &Snapshot, sample_type: usize) -> String {
    // It is an export as the others are, and of some megabytes: in no profile.
    let _untracked = sampling::untracked();
    let (before, rest) =
        TEMPLATE.split_once("{{profile}}").expect("the template has a place for the profile");
    let title = html::escaped(snapshot.name());
    let profile = html::script_safe(&data(snapshot, sample_type));
    [&before.replace("{{title}}", &title), &profile, &*rest.replace("{{title}}", &title)].concat()
}

/// The profile in the form that the page's script reads.
fn data(snapshot: &Snapshot, sample_type: usize) -> String {
    let (time_nanos, duration_nanos) = snapshot.time_and_duration_nanos();
    let tree = snapshot.call_tree();
    let functions: Vec<(&str, &str)> = tree.functions.iter().map(|(name, file)| (&**name, &**file)).collect();
    let profile = json!({
        "name": snapshot.name(),
        "types": snapshot.sample_types(),
        "type": sample_type,
        "time_nanos": time_nanos,
        "duration_nanos": duration_nanos,
        "comments": snapshot.comments(),
        "functions": functions,
        "nodes": flat(&tree),
    });
    profile.to_string()
}

/// Parent, function and values of each node, one after the other: a third of the size of objects.
fn flat(tree: &CallTree) -> Vec<i64> {
    let mut numbers = Vec::with_capacity(tree.nodes.len() * 6);
    for node in &tree.nodes {
        numbers.push(node.parent.map_or(-1, i64::from));
        numbers.push(i64::from(node.function));
        numbers.extend(&node.values);
    }
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;
    use rtprof_pprof_out::Profile;

    #[test]
    fn the_template_has_its_places() {
        assert_eq!(TEMPLATE.matches("{{profile}}").count(), 1);
        assert!(TEMPLATE.contains("{{title}}"));
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
        let page = page(&profile.snapshot().unwrap(), 0);
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
