//! The flame graph page in a browser: profiles to fill it with, and ways to inspect it.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::browser::{Browser, Screen};
use crate::{folder, sample_types};

const PAGE: &str = include_str!("../../http/src/pages/flamegraph.html");

pub const DESK: Screen = Screen { width: 1200, height: 800, dark: false };
pub const NIGHT: Screen = Screen { dark: true, ..DESK };
pub const PHONE: Screen = Screen { width: 360, height: 740, dark: false };

pub const INUSE_SPACE: usize = 3;
pub const MIB: i64 = 1 << 20;

/// A stack from its outermost function, and its allocations: objects and bytes, in total and still in use.
pub type Stack = (&'static [&'static str], [i64; 4]);

pub const MAIN: &str = "shop::main";
pub const SERVE: &str = "shop::server::serve";
pub const ORDER: &str = "shop::orders::Order::parse";
pub const JSON: &str = "serde_json::de::from_slice<shop::orders::Order>";
pub const CACHE: &str = "<shop::cache::Cache<K,V> as shop::cache::Store>::insert";
pub const VISIT: &str = "shop::index::visit";
pub const TO_VEC: &str = "alloc::slice::<impl [u8]>::to_vec";
pub const START: &str = "shop::config::load::{{closure}}";

/// 100 MiB in use. `visit` calls itself, so that the number of frames differs from that of stacks.
pub const SHOP: [Stack; 7] = [
    (&[MAIN, SERVE, ORDER, JSON, TO_VEC], [50_000, 600 * MIB, 4_000, 10 * MIB]),
    (&[MAIN, SERVE, ORDER, JSON], [20_000, 100 * MIB, 1_000, 5 * MIB]),
    (&[MAIN, SERVE, ORDER], [1_000, 10 * MIB, 0, 0]),
    (&[MAIN, SERVE, CACHE, TO_VEC], [9_000, 50 * MIB, 9_000, 50 * MIB]),
    (&[MAIN, SERVE, VISIT, VISIT, VISIT], [700, 20 * MIB, 700, 20 * MIB]),
    (&[MAIN, SERVE, VISIT], [300, 5 * MIB, 300, 5 * MIB]),
    (&[MAIN, START], [20, 10 * MIB, 20, 10 * MIB]),
];

/// Returns the data as the server writes it: each function once, and the tree of stacks with callers before callees.
pub fn profile_of(stacks: &[Stack]) -> Value {
    let mut functions: Vec<&str> = Vec::new();
    let mut nodes: Vec<(i64, usize, [i64; 4])> = Vec::new();
    for (stack, values) in stacks {
        let mut parent = -1;
        for name in *stack {
            let function = functions.iter().position(|known| known == name).unwrap_or_else(|| {
                functions.push(name);
                functions.len() - 1
            });
            let known = nodes.iter().position(|node| (node.0, node.1) == (parent, function));
            parent = known.unwrap_or_else(|| {
                nodes.push((parent, function, [0; 4]));
                nodes.len() - 1
            }) as i64;
        }
        nodes[parent as usize].2 = *values;
    }
    let functions: Vec<_> = functions.iter().map(|name| json!([name, "/home/shop/src/lib.rs"])).collect();
    let flat: Vec<i64> =
        nodes.iter().flat_map(|(up, function, own)| [&[*up, *function as i64], &own[..]].concat()).collect();
    json!({
        "name": "heap",
        "types": sample_types::of("heap"),
        "type": INUSE_SPACE,
        "time_nanos": 1_760_000_000_000_000_000_i64,
        "duration_nanos": 0,
        "comments": [],
        "functions": functions,
        "nodes": flat,
    })
}

/// Fills the page as the server does, and returns its address.
pub fn page(test: &str, profile: &Value) -> String {
    let profile = profile.to_string().replace('<', "\\u003c");
    let path: PathBuf = folder::tmp().join(format!("flamegraph-{test}.html"));
    std::fs::write(
        &path,
        PAGE.replace("{{title}}", "heap").replace("{{program}}", "shop").replace("{{profile}}", &profile),
    )
    .expect("the build's own folder can be written");
    format!("file://{}", path.display())
}

pub fn show(browser: &mut Browser, url: &str, screen: Screen) {
    browser.open(url, screen);
    browser.wait_for("document.body.dataset.ready === '1'");
}

/// Saves a picture for manual inspection.
pub fn picture(browser: &mut Browser, name: &str) {
    browser.screenshot(&folder::tmp().join(format!("flamegraph-{name}.png")));
}

/// Checks that the page logged no error and requested nothing.
pub fn is_clean(browser: &mut Browser, url: &str) {
    assert_eq!(browser.console_errors(), [""; 0]);
    assert_eq!(browser.requested(), [url.split('#').next().expect("split gives one at least")]);
}

/// Returns the left edge and the width of the `which`th frame of this name.
pub fn frame(browser: &mut Browser, name: &str, which: usize) -> (f64, f64) {
    let expression = format!(
        "(() => {{
            const frames = [...document.querySelectorAll('.frame')].filter(f => f.dataset.name === {name:?});
            const box = frames[{which}]?.getBoundingClientRect();
            return box ? [box.left, box.width] : [];
        }})()"
    );
    let found = browser.evaluate(&expression);
    match (found[0].as_f64(), found[1].as_f64()) {
        (Some(left), Some(width)) => (left, width),
        _ => panic!("no frame {which} of {name}"),
    }
}

pub fn width(browser: &mut Browser, name: &str) -> f64 {
    frame(browser, name, 0).1
}

#[track_caller]
pub fn about(is: f64, expected: f64) {
    assert!((is - expected).abs() <= 1.0, "{is} px, not {expected} px");
}

pub fn selector(name: &str) -> String {
    format!(".frame[data-name=\"{name}\"]")
}

pub fn text(browser: &mut Browser, selector: &str) -> String {
    let text = browser.evaluate(&format!("document.querySelector({selector:?}).innerText"));
    text.as_str().expect("an element has a text").to_owned()
}

/// Selects a sample type by the page's control.
pub fn choose_type(browser: &mut Browser, name: &str) {
    browser.evaluate(&format!(
        "(() => {{
            const select = document.querySelector('#type');
            select.value = [...select.options].find(o => o.text.startsWith({name:?})).value;
            select.dispatchEvent(new Event('change', {{ bubbles: true }}));
        }})()"
    ));
}
