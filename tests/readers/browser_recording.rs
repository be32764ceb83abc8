//! A CPU profile taken in a browser: the page says that it is recording, and becomes the flame graph.
#![cfg(target_os = "linux")]

use std::hint::black_box;

use test_support::Background;
use test_support::browser::Browser;
use test_support::child;
use test_support::flame_graph::{DESK, NIGHT, frame, is_clean, picture, text, width};

#[inline(never)]
fn mixes(rounds: u32) -> u64 {
    (0..rounds).fold(0, |sum, round| black_box(sum ^ u64::from(round.wrapping_mul(31))))
}

#[inline(never)]
fn copies() {
    let page = vec![1_u8; 1 << 20];
    for _ in 0..20 {
        black_box(page.clone());
    }
}

#[test]
fn a_page_is_recorded_while_one_looks() {
    child::isolated("a_page_is_recorded_while_one_looks", || {
        let Some(mut browser) = Browser::start("a_page_is_recorded_while_one_looks") else { return };
        let server = rtprof::http::serve("127.0.0.1:0").expect("a port is free");
        let index = format!("http://{}/debug/pprof/", server.local_addr());
        let background = Background::default();
        std::thread::scope(|scope| {
            let _ends = background.ends_here();
            scope.spawn(|| {
                background.repeat(|| {
                    black_box(mixes(300_000));
                    copies();
                });
            });
            browser.open(&index, DESK);
            let means = text(&mut browser, ".totals");
            assert!(means.contains("CPU samples are taken\nby "), "{means}");
            picture(&mut browser, "index-cpu");
            for (screen, name) in [(DESK, "recording"), (NIGHT, "recording-dark")] {
                let url = format!("{index}profile?format=flamegraph&seconds=2");
                browser.open_first_part(&url, screen);
                let is_shown = "document.querySelector('#recording')?.getClientRects().length > 0";
                browser.wait_for(is_shown);
                let says = text(&mut browser, "#recording");
                assert!(says.contains("Recording profile of ") && says.contains("for 2 seconds."), "{says}");
                picture(&mut browser, name);
                browser.wait_for("document.body?.dataset.ready === '1'");
                assert_eq!(browser.evaluate(is_shown), false);
                assert!(width(&mut browser, "readers::browser_recording::mixes") > 0.0);
                assert!(width(&mut browser, "readers::browser_recording::copies") > 0.0);
                assert!(frame(&mut browser, "all", 0).1 > 1000.0);
                let links = text(&mut browser, "#links");
                assert_eq!(
                    links,
                    "index collapsed (another 2 s) download (another 2 s)"
                        .replace(") d", ")\nd")
                        .replace("index c", "index\nc")
                );
                picture(&mut browser, &format!("{name}-done"));
                is_clean(&mut browser, &url);
            }
        });
        server.shutdown();
    });
}
