//! The pages in a real browser, with mouse, keys and a phone's screen. Most tests use flame graphs of made-up profiles,
//! read from a file; the last test uses the pages that the server serves.

use std::hint::black_box;

use serde_json::{Value, json};
use test_support::browser::Browser;
use test_support::child;
use test_support::flame_graph::*;

#[inline(never)]
fn keeps_much() -> Vec<u8> {
    black_box(vec![0; 64 << 20])
}

#[inline(never)]
fn keeps_little() -> Vec<u8> {
    black_box(vec![0; 16 << 20])
}

#[inline(never)]
fn keeps_both() -> [Vec<u8>; 2] {
    black_box([keeps_much(), keeps_little()])
}

#[test]
fn frames_are_as_wide_as_their_values() {
    let Some(mut browser) = Browser::start("frames_are_as_wide_as_their_values") else { return };
    let url = page("widths", &profile_of(&SHOP));
    show(&mut browser, &url, DESK);
    let (left, all) = frame(&mut browser, "all", 0);
    assert!(all > 1100.0, "the graph uses the screen: {all}");
    for (name, mib) in
        [(MAIN, 100.0), (SERVE, 90.0), (ORDER, 15.0), (JSON, 15.0), (CACHE, 50.0), (START, 10.0)]
    {
        about(width(&mut browser, name), all * mib / 100.0);
    }
    about(frame(&mut browser, VISIT, 0).1, all * 0.25);
    about(frame(&mut browser, VISIT, 1).1, all * 0.20);
    about(frame(&mut browser, CACHE, 0).0, left);
    about(frame(&mut browser, VISIT, 0).0, left + all * 0.50);
    browser.evaluate(&format!("document.querySelector({:?}).focus()", selector(ORDER)));
    let details = text(&mut browser, "#details");
    for part in
        [ORDER, "/home/shop/src/lib.rs", "total 15.0 MiB", "self 0 B", "15.0 % of all", "16.7 % of parent"]
    {
        assert!(details.contains(part), "{part} is not in {details}");
    }
    let links = "[...document.querySelectorAll('#links a')].map(link => link.getAttribute('href'))";
    let collapsed = "./heap?format=collapsed&sample_index=inuse_space";
    assert_eq!(browser.evaluate(links), json!(["./", "./heap?debug=1", collapsed, "./heap"]));
    picture(&mut browser, "light");
    is_clean(&mut browser, &url);
}

#[test]
fn click_zooms_and_escape_goes_back() {
    let Some(mut browser) = Browser::start("click_zooms_and_escape_goes_back") else { return };
    let url = page("zoom", &profile_of(&SHOP));
    show(&mut browser, &url, NIGHT);
    let all = width(&mut browser, "all");
    browser.click_on(&selector(ORDER));
    for name in ["all", MAIN, SERVE, ORDER] {
        about(width(&mut browser, name), all);
    }
    about(width(&mut browser, TO_VEC), all * 10.0 / 15.0);
    assert_eq!(browser.evaluate("document.querySelectorAll('.frame.ancestor').length"), 3);
    assert!(text(&mut browser, "#details").contains("15.0 MiB"));
    picture(&mut browser, "zoomed");
    // The address shows the same view to every reader.
    let link = browser.evaluate("location.href").as_str().expect("a text").to_owned();
    assert_ne!(link, url);
    browser.press("Escape");
    about(width(&mut browser, ORDER), all * 0.15);
    show(&mut browser, &link, DESK);
    about(width(&mut browser, ORDER), all);
    // A click on an ancestor goes back too, as do the button and the keyboard.
    browser.click_on(&selector(SERVE));
    about(width(&mut browser, ORDER), all * 15.0 / 90.0);
    browser.click_on("#reset");
    about(width(&mut browser, SERVE), all * 0.90);
    browser.evaluate("document.querySelector('.frame').focus()");
    for key in ["ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "Enter"] {
        browser.press(key);
    }
    about(width(&mut browser, VISIT), all);
    browser.evaluate("history.back()");
    browser.wait_for("document.querySelectorAll('.frame.ancestor').length === 0");
    is_clean(&mut browser, &link);
}

#[test]
fn search_marks_frames_and_counts_a_stack_once() {
    let Some(mut browser) = Browser::start("search_marks_frames_and_counts_a_stack_once") else { return };
    let url = page("search", &profile_of(&SHOP));
    show(&mut browser, &url, DESK);
    let marked = |browser: &mut Browser| {
        browser.evaluate("[...document.querySelectorAll('.frame.match')].map(f => f.dataset.name)")
    };
    browser.press("/");
    browser.type_text("Visit");
    assert_eq!(
        text(&mut browser, "#matched"),
        "matched: 25.0 MiB (25.0 %)",
        "20 of them are under it three times"
    );
    assert_eq!(marked(&mut browser), json!([VISIT, VISIT, VISIT]));
    picture(&mut browser, "searched");
    let link = browser.evaluate("location.href").as_str().expect("a text").to_owned();
    browser.press("Escape");
    assert_eq!(text(&mut browser, "#matched"), "");
    assert_eq!(marked(&mut browser), json!([]));
    // A text that is also an expression with another meaning: `[u8]` is not "any u or 8".
    browser.type_text("[u8]");
    assert_eq!(text(&mut browser, "#matched"), "matched: 60.0 MiB (60.0 %)");
    browser.press("Escape");
    browser.type_text("^serde.*slice|config::load");
    assert_eq!(text(&mut browser, "#matched"), "matched: 25.0 MiB (25.0 %)");
    assert_eq!(marked(&mut browser), json!([START, JSON]));
    browser.press("Escape");
    browser.type_text("(");
    assert_eq!(text(&mut browser, "#matched"), "matched: 0 B (0 %)", "no expression, and no text of a name");
    show(&mut browser, &link, DESK);
    assert_eq!(text(&mut browser, "#matched"), "matched: 25.0 MiB (25.0 %)", "a link carries the search");
    is_clean(&mut browser, &link);
}

#[test]
fn another_sample_type_has_other_widths() {
    let Some(mut browser) = Browser::start("another_sample_type_has_other_widths") else { return };
    let mut profile = profile_of(&SHOP);
    show(&mut browser, &page("types", &profile), DESK);
    assert_eq!(text(&mut browser, "#type option:checked"), "inuse_space (bytes)");
    let all = width(&mut browser, "all");
    choose_type(&mut browser, "alloc_objects");
    about(width(&mut browser, ORDER), all * 71_000.0 / 81_020.0);
    browser.click_on(&selector(ORDER));
    let details = text(&mut browser, "#details");
    assert!(details.contains("total 71,000") && details.contains("self 1,000"), "{details}");

    // Nothing is in use any more, as after a leak is fixed. The page says so, and links to the other sample types.
    let nodes = profile["nodes"].as_array_mut().expect("a list");
    nodes.iter_mut().skip(2 + INUSE_SPACE).step_by(6).for_each(|value| *value = 0.into());
    let url = page("types-empty", &profile);
    show(&mut browser, &url, DESK);
    assert!(text(&mut browser, "#empty").contains("Nothing in inuse_space"));
    assert_eq!(browser.evaluate("document.querySelectorAll('.frame').length"), 0);
    browser.click_on("#empty button");
    about(width(&mut browser, ORDER), all * 71_000.0 / 81_020.0);
    is_clean(&mut browser, &url);
}

/// Frames whose value is negative are not drawn, and the page says so.
#[test]
fn negative_values_have_no_width() {
    let Some(mut browser) = Browser::start("negative_values_have_no_width") else { return };
    let mut stacks = SHOP;
    stacks[3].1 = [0, 0, -9_000, -50 * MIB];
    let mut profile = profile_of(&stacks);
    profile["duration_nanos"] = 30_000_000_000_i64.into();
    let url = page("negative", &profile);
    show(&mut browser, &url, DESK);
    let all = width(&mut browser, "all");
    about(width(&mut browser, SERVE), all * 40.0 / 50.0);
    assert_eq!(browser.evaluate(&format!("document.querySelector({:?})", selector(CACHE))), Value::Null);
    assert!(text(&mut browser, "#unseen").contains("-50.0 MiB in 1 place that shrank"));
    assert!(text(&mut browser, "header").contains("change over 30.0 s"));
    browser.click_on(&selector(SERVE));
    assert!(text(&mut browser, "#details").contains("total -10.0 MiB net (40.0 MiB drawn, -50.0 MiB not)"));
    picture(&mut browser, "negative");
    browser.press("Escape");
    browser.click_on("#unseen button");
    about(width(&mut browser, CACHE), all);
    assert!(text(&mut browser, "#unseen").contains("50.0 MiB in 5 places that grew"));
    is_clean(&mut browser, &url);
}

/// Returns the least contrast of text and background among the elements of a selector, by the formula of WCAG.
fn least_contrast(browser: &mut Browser, selector: &str) -> f64 {
    let least = browser.evaluate(&format!(
        "(() => {{
            const linear = part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
            const luminance = colour => {{
                const [r, g, b] = colour.match(/[\\d.]+/g).map(part => linear(part / 255));
                return 0.2126 * r + 0.7152 * g + 0.0722 * b;
            }};
            const contrast = element => {{
                const style = getComputedStyle(element);
                const [one, two] = [luminance(style.color), luminance(style.backgroundColor)];
                return (Math.max(one, two) + 0.05) / (Math.min(one, two) + 0.05);
            }};
            return Math.min(...[...document.querySelectorAll({selector:?})].map(contrast));
        }})()"
    ));
    least.as_f64().unwrap_or_else(|| panic!("nothing is {selector}"))
}

#[test]
fn colours_are_legible_by_day_and_night() {
    let Some(mut browser) = Browser::start("colours_are_legible_by_day_and_night") else { return };
    // Enough crates to cover every part of the colour circle.
    let mut profile = profile_of(&SHOP);
    for number in 0..60 {
        let functions = profile["functions"].as_array_mut().expect("a list");
        functions.push(json!([format!("crate_{number}::module_{}::function", number % 7), "lib.rs"]));
        let function = functions.len() - 1;
        let own = [0, function, 1, 1, 1, 2 << 20];
        profile["nodes"].as_array_mut().expect("a list").extend(own.map(Value::from));
    }
    let url = page("colours", &profile);
    show(&mut browser, &url, DESK);
    let background = "getComputedStyle(document.body).backgroundColor";
    assert_eq!(browser.evaluate(background), "rgb(255, 255, 255)");
    for dark in [false, true] {
        browser.prefer_dark(dark);
        browser.wait_for(&format!("({background} === 'rgb(255, 255, 255)') !== {dark}"));
        browser.click_on(&selector(SERVE));
        let dimmed = least_contrast(&mut browser, ".frame.ancestor");
        browser.press("Escape");
        let plain = least_contrast(&mut browser, ".frame");
        browser.press("/");
        browser.type_text("visit");
        let (found, other) = (
            least_contrast(&mut browser, ".frame.match"),
            least_contrast(&mut browser, ".frame:not(.match)"),
        );
        picture(&mut browser, if dark { "dark" } else { "day" });
        browser.press("Escape");
        for (what, contrast) in [("plain", plain), ("dimmed", dimmed), ("found", found), ("other", other)] {
            assert!(contrast >= 4.5, "{what} frames, dark {dark}: {contrast}");
        }
    }
    // The button overrides the system's setting, and the browser remembers the choice.
    browser.click_on("#theme");
    assert_eq!(browser.evaluate(background), "rgb(255, 255, 255)");
    // The code of a reload. A real reload would test how soon the browser writes, which can take a second.
    browser.evaluate("showTheme('dark'); followTheme()");
    assert_eq!(browser.evaluate(background), "rgb(255, 255, 255)");
    is_clean(&mut browser, &url);
}

#[test]
fn phone_has_no_overflow() {
    let Some(mut browser) = Browser::start("phone_has_no_overflow") else { return };
    let mut profile = profile_of(&SHOP);
    profile["comments"] = json!([format!("rtprof: 12 samples were lost: {}", "no_memory_".repeat(12))]);
    let url = page("phone", &profile);
    show(&mut browser, &url, PHONE);
    let fits = "document.documentElement.scrollWidth <= innerWidth && innerWidth === 360";
    assert_eq!(browser.evaluate(fits), true);
    let smallest = browser.evaluate(
        "Math.min(...[...document.querySelectorAll('body *')].map(e => parseFloat(getComputedStyle(e).fontSize)))",
    );
    assert!(smallest.as_f64().is_some_and(|pixels| pixels >= 12.0), "{smallest} px");
    picture(&mut browser, "phone");
    browser.click_on(&selector(VISIT));
    assert_eq!(browser.evaluate(fits), true);
    assert!(text(&mut browser, "#details").contains("25.0 MiB"));
    browser.press("/");
    browser.type_text("slice");
    assert_eq!(browser.evaluate(fits), true);
    picture(&mut browser, "phone-zoomed");
    is_clean(&mut browser, &url);
}

const SCRIPT: &str = "</script><script>document.title = 'run'</script>";
const IMAGE: &str = "<img src=x onerror=\"document.title = 'run'\">";
const QUOTES: &str = "a\"b'c`d\\e\u{2028}&lt;&amp;${1}";

/// Names come from any library that the program links.
#[test]
fn hostile_names_are_text() {
    let Some(mut browser) = Browser::start("hostile_names_are_text") else { return };
    let long: &'static str = "very_long::".repeat(2_000).leak();
    let values = [1, MIB, 1, MIB];
    let stacks: &[&'static [&'static str]] =
        &[&[SCRIPT], &[IMAGE], &[QUOTES], &[&[long], &[""][..]].concat().leak()[..]];
    let stacks: Vec<Stack> = stacks.iter().map(|stack| (*stack, values)).collect();
    let mut profile = profile_of(&stacks);
    profile["comments"] = json!([SCRIPT, IMAGE]);
    let url = page("hostile", &profile);
    show(&mut browser, &url, DESK);
    for name in [SCRIPT, IMAGE, QUOTES, long] {
        let found = browser.evaluate(&format!(
            "(() => {{
                const frame = [...document.querySelectorAll('.frame')].find(f => f.dataset.name === {});
                frame.click();
                const shown = document.querySelector('#details .name').textContent;
                return [frame.childElementCount, shown === frame.dataset.name];
            }})()",
            json!(name)
        ));
        assert_eq!(found, json!([0, true]), "{name}");
        picture(&mut browser, "hostile");
        browser.press("Escape");
    }
    assert_eq!(browser.evaluate("document.querySelectorAll('#remarks li *, .frame *, img').length"), 0);
    assert_eq!(browser.evaluate("document.title"), "heap - shop");
    assert_eq!(browser.evaluate("document.documentElement.scrollWidth <= innerWidth"), true);
    is_clean(&mut browser, &url);
}

#[test]
fn empty_profile_says_so() {
    let Some(mut browser) = Browser::start("empty_profile_says_so") else { return };
    let mut profile = profile_of(&[]);
    profile["comments"] = json!(["rtprof: the rate is 0: nothing is recorded"]);
    let url = page("empty", &profile);
    show(&mut browser, &url, NIGHT);
    assert!(text(&mut browser, "#empty").contains("Nothing in this profile (yet)."));
    assert!(text(&mut browser, "#remarks").contains("the rate is 0"));
    picture(&mut browser, "empty");
    is_clean(&mut browser, &url);
}

/// The profile of a large program: 50,000 frames, of which a screen shows some.
#[test]
fn large_profile_is_drawn_in_time() {
    let Some(mut browser) = Browser::start("large_profile_is_drawn_in_time") else { return };
    let mut profile = profile_of(&[]);
    profile["functions"] =
        (0..5_000).map(|n| json!([format!("crate_{}::function_{n}", n % 40), "lib.rs"])).collect();
    // Chains of 100 frames, with twenty chains below each parent; half of them keep little.
    let nodes = (0..50_000_i64).flat_map(|n| {
        let chain = n / 100;
        let parent = match n % 100 {
            0 if chain == 0 => -1,
            0 => chain / 20 * 100 + 15,
            _ => n - 1,
        };
        let own = if n % 10 == 9 { 64 << (chain % 2 * 5) } else { 0 };
        [parent, n * 7919 % 5_000, own, own, own, own]
    });
    profile["nodes"] = nodes.collect();
    let url = page("large", &profile);
    show(&mut browser, &url, DESK);
    let count = "document.querySelectorAll('.frame').length";
    let drawn = browser.evaluate(count).as_u64().expect("a number");
    assert!((500..15_000).contains(&drawn), "{drawn} frames are drawn: those in sight");
    picture(&mut browser, "large");
    // Compared with the same number of elements that are made, laid out and removed again: the browser's part of the
    // time. Reading the width makes the browser lay the page out.
    let ours = browser.least_time("draw(); graph.offsetWidth;");
    let theirs = browser.time_of_elements("frame", drawn);
    println!("{drawn} frames in {ours} ms, as many elements in {theirs} ms");
    assert!(ours < 10.0 * theirs, "{ours} ms to draw, {theirs} ms for as many elements");
    // The rest is drawn when the reader scrolls there.
    browser.evaluate("window.scrollTo(0, document.documentElement.scrollHeight)");
    browser.wait_for(&format!("{count} > {drawn} && document.querySelector('.rest')"));
    let lowest =
        browser.evaluate("Math.max(...[...document.querySelectorAll('.frame')].map(f => f.ariaLevel))");
    assert_eq!(lowest, browser.evaluate("rows.length"));
    picture(&mut browser, "large-below");
    is_clean(&mut browser, &url);
}

/// The page shows the program's allocations, and works under the policy that the server sends with it.
#[test]
fn served_pages_work() {
    child::isolated("served_pages_work", || {
        let Some(mut browser) = Browser::start("served_pages_work") else { return };
        rtprof::set_mem_profile_rate(1);
        let kept = keeps_both();
        rtprof::set_mem_profile_rate(0);
        let server = rtprof::http::serve("127.0.0.1:0").expect("a port is free");
        let index = format!("http://{}/debug/pprof/", server.local_addr());
        let url = format!("{index}heap?format=flamegraph");
        show(&mut browser, &url, DESK);
        let both = width(&mut browser, "readers::browser::keeps_both");
        about(width(&mut browser, "readers::browser::keeps_much"), both * 64.0 / 80.0);
        about(width(&mut browser, "readers::browser::keeps_little"), both * 16.0 / 80.0);
        browser.click_on(&selector("readers::browser::keeps_little"));
        let details = text(&mut browser, "#details");
        assert!(details.contains(file!()) && details.contains("total 16.0 MiB"), "{details}");
        picture(&mut browser, "served");
        is_clean(&mut browser, &url);
        for screen in [PHONE, NIGHT] {
            browser.open(&index, screen);
            assert_eq!(browser.evaluate("document.documentElement.scrollWidth <= innerWidth"), true);
            picture(&mut browser, if screen.dark { "index-dark" } else { "index-phone" });
            is_clean(&mut browser, &index);
        }
        browser.follow("a[href='heap?format=flamegraph']");
        let both = width(&mut browser, "readers::browser::keeps_both");
        about(width(&mut browser, "readers::browser::keeps_much"), both * 64.0 / 80.0);
        server.shutdown();
        drop(kept);
    });
}
