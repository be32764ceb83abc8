//! A headless Chromium, driven as its own developer tools drive it: messages of JSON, each ended by a zero byte, over
//! two pipes that the browser finds at descriptors 3 and 4. So no port is open and no WebSocket needed.
//!
//! `ci/browser.sh` installs a browser. A test that finds none reports loudly that it was skipped; with
//! `RTPROF_REQUIRE_BROWSER=1` it fails.

use std::io::{BufRead, BufReader, PipeReader, PipeWriter, Write, pipe};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::folder;

const NAMES: [&str; 4] = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

/// How long an answer may take: a cold start of a browser on a busy machine takes many seconds.
const PATIENCE: Duration = Duration::from_secs(60);

/// The screen on which a page is shown.
#[derive(Clone, Copy)]
pub struct Screen {
    pub width: u32,
    pub height: u32,
    pub dark: bool,
}

/// A browser with one tab. Dropping it ends all of its processes and removes its files.
pub struct Browser {
    process: Child,
    requests: PipeWriter,
    answers: Receiver<Value>,
    /// The events that the browser sent since the last [`Browser::open`].
    events: Vec<Value>,
    session: Option<String>,
    last_id: u64,
    /// Whether the screen is a phone's, which is tapped instead of clicked.
    is_phone: bool,
    folder: PathBuf,
}

/// Returns a browser of this machine; `None` if none is installed.
fn installed() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let folders: Vec<PathBuf> = std::env::split_paths(&path).collect();
    NAMES
        .iter()
        .flat_map(|name| folders.iter().map(move |folder| folder.join(name)))
        .find(|file| file.is_file())
}

impl Browser {
    /// Starts a browser for `test`. `None` means that the test is to be skipped, which has been reported.
    pub fn start(test: &str) -> Option<Self> {
        let Some(program) = installed() else {
            let message = format!("no browser ({}); `ci/browser.sh` installs one", NAMES.join(", "));
            assert!(std::env::var("RTPROF_REQUIRE_BROWSER").as_deref() != Ok("1"), "{message}");
            crate::skipped(test, &message);
            return None;
        };
        static STARTED: AtomicU32 = AtomicU32::new(0);
        let number = STARTED.fetch_add(1, Relaxed);
        let folder = folder::tmp().join(format!("browser-{}-{number}", std::process::id()));
        let (browser_reads, requests) = pipe().expect("pipes can be made");
        let (answers, browser_writes) = pipe().expect("pipes can be made");
        let process = spawn(&program, &folder, &browser_reads, &browser_writes);
        let mut browser = Self {
            process,
            requests,
            answers: receive(answers),
            events: Vec::new(),
            session: None,
            last_id: 0,
            is_phone: false,
            folder,
        };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" }));
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach);
        browser.session = Some(attached["sessionId"].as_str().expect("a session has an id").to_owned());
        for domain in ["Page", "Runtime", "Log", "Network"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Loads a page, to the end of its scripts. The logs and requests of earlier pages are forgotten.
    pub fn open(&mut self, url: &str, screen: Screen) {
        self.prepare(screen);
        self.load(url);
    }

    /// As [`Browser::open`], for a page that is complete only after a while: returns when its first part is loaded.
    pub fn open_first_part(&mut self, url: &str, screen: Screen) {
        self.prepare(screen);
        let answer = self.call("Page.navigate", json!({ "url": url }));
        assert!(answer.get("errorText").is_none(), "{url}: {answer}");
    }

    fn prepare(&mut self, screen: Screen) {
        // Starts from another page, because navigating to the same page with another `#...` loads nothing.
        self.load("about:blank");
        let Screen { width, height, .. } = screen;
        self.is_phone = width < 600;
        // As a phone, which would lay the page out wider than its screen if the page did not prevent this.
        let metrics =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": self.is_phone });
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        self.call("Emulation.setTouchEmulationEnabled", json!({ "enabled": self.is_phone }));
        self.prefer_dark(screen.dark);
        self.events.clear();
    }

    /// Clicks on a link, and waits for the new page.
    pub fn follow(&mut self, selector: &str) {
        self.events.clear();
        self.loading(|browser| browser.click_on(selector));
    }

    fn load(&mut self, url: &str) {
        let answer = self.loading(|browser| browser.call("Page.navigate", json!({ "url": url })));
        assert!(answer.get("errorText").is_none(), "{url}: {answer}");
    }

    /// Runs `act`, which loads a page, and waits for the load event.
    fn loading<T>(&mut self, act: impl FnOnce(&mut Self) -> T) -> T {
        let is_load = |event: &&Value| event["method"] == "Page.loadEventFired";
        let before = self.events.iter().filter(is_load).count();
        let result = act(self);
        let started = Instant::now();
        while self.events.iter().filter(is_load).count() == before {
            self.hear(started, "loading");
        }
        result
    }

    /// Makes the system prefer dark colours, or light ones.
    pub fn prefer_dark(&mut self, dark: bool) {
        let scheme = if dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        self.call("Emulation.setEmulatedMedia", json!({ "features": features }));
    }

    /// Evaluates an expression in the page, and returns its value as JSON. Fails if the expression throws.
    pub fn evaluate(&mut self, expression: &str) -> Value {
        let parameters = json!({ "expression": expression, "returnByValue": true, "awaitPromise": true });
        let mut answer = self.call("Runtime.evaluate", parameters);
        assert!(answer.get("exceptionDetails").is_none(), "{expression}\nthrew {answer}");
        answer["result"]["value"].take()
    }

    /// Returns the milliseconds that statements take in the page: the least of five times.
    pub fn least_time(&mut self, statements: &str) -> f64 {
        let timed = format!(
            "Math.min(...[1, 2, 3, 4, 5].map(() => {{
                const start = performance.now();
                {statements}
                return performance.now() - start;
            }}))"
        );
        self.evaluate(&timed).as_f64().expect("a number")
    }

    /// Returns the milliseconds that it takes to make so many elements of a class, lay them out and remove them.
    pub fn time_of_elements(&mut self, class: &str, count: u64) -> f64 {
        self.least_time(&format!(
            "const box = document.createElement('div');
            for (let n = 0; n < {count}; n++) {{
                const element = document.createElement('button');
                element.className = '{class}';
                element.textContent = 'function ' + n;
                element.style.left = n % 100 + '%';
                box.append(element);
            }}
            document.body.append(box);
            box.offsetWidth;
            box.remove();"
        ))
    }

    /// Waits until an expression of the page is true.
    pub fn wait_for(&mut self, expression: &str) {
        let started = Instant::now();
        while self.evaluate(&format!("Boolean({expression})")) != true {
            assert!(started.elapsed() < PATIENCE, "never came true: {expression}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Clicks at a point of the screen, in CSS pixels; on a phone, taps.
    pub fn click(&mut self, x: f64, y: f64) {
        if self.is_phone {
            let finger = json!({ "type": "touchStart", "touchPoints": [{ "x": x, "y": y }] });
            self.call("Input.dispatchTouchEvent", finger);
            self.call("Input.dispatchTouchEvent", json!({ "type": "touchEnd", "touchPoints": [] }));
            return;
        }
        for kind in ["mousePressed", "mouseReleased"] {
            let parameters = json!({ "type": kind, "x": x, "y": y, "button": "left", "clickCount": 1 });
            self.call("Input.dispatchMouseEvent", parameters);
        }
    }

    /// Clicks in the middle of the first element that a CSS selector finds.
    pub fn click_on(&mut self, selector: &str) {
        let place = self.evaluate(&format!(
            "(async () => {{
                const found = document.querySelector({selector:?});
                found?.scrollIntoView({{ block: 'center' }});
                // A click is for what was last painted at its point.
                for (let i = 0; i < 2; i++) await new Promise(requestAnimationFrame);
                const box = found?.getBoundingClientRect();
                return box && [box.x + box.width / 2, box.y + box.height / 2];
            }})()"
        ));
        match (place[0].as_f64(), place[1].as_f64()) {
            (Some(x), Some(y)) => self.click(x, y),
            _ => panic!("nothing to click on: {selector}"),
        }
    }

    /// Types into the element that has the focus.
    pub fn type_text(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text }));
    }

    /// Presses a key, named as in a page's `event.key`: `Escape`, `ArrowDown`, `/`.
    pub fn press(&mut self, key: &str) {
        let code = match key {
            "Enter" => 13,
            "Escape" => 27,
            "ArrowLeft" => 37,
            "ArrowUp" => 38,
            "ArrowRight" => 39,
            "ArrowDown" => 40,
            _ => 0,
        };
        let mut down = json!({ "type": "keyDown", "key": key, "windowsVirtualKeyCode": code });
        if key.chars().count() == 1 {
            down["text"] = key.into();
        }
        self.call("Input.dispatchKeyEvent", down);
        let up = json!({ "type": "keyUp", "key": key, "windowsVirtualKeyCode": code });
        self.call("Input.dispatchKeyEvent", up);
    }

    /// Writes what the screen shows as PNG.
    pub fn screenshot(&mut self, path: &Path) {
        let answer = self.call("Page.captureScreenshot", json!({ "format": "png" }));
        let data = answer["data"].as_str().expect("a picture is a text");
        std::fs::write(path, from_base64(data)).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// Returns the page's logged errors, uncaught exceptions, and complaints of the browser.
    pub fn console_errors(&mut self) -> Vec<String> {
        // Events and answers come in order: events sent before this answer have arrived after it.
        self.evaluate("0");
        let is_error = |event: &&Value| match event["method"].as_str() {
            Some("Runtime.exceptionThrown") => true,
            Some("Runtime.consoleAPICalled") => {
                matches!(event["params"]["type"].as_str(), Some("error" | "assert"))
            }
            Some("Log.entryAdded") => event["params"]["entry"]["level"] == "error",
            _ => false,
        };
        self.events.iter().filter(is_error).map(|event| event["params"].to_string()).collect()
    }

    /// Returns the addresses that the page requested, its own first.
    pub fn requested(&mut self) -> Vec<String> {
        self.evaluate("0");
        let requests = self.events.iter().filter(|event| event["method"] == "Network.requestWillBeSent");
        requests.map(|event| event["params"]["request"]["url"].as_str().unwrap_or("?").to_owned()).collect()
    }

    /// Sends a command of the protocol, and returns its result.
    fn call(&mut self, method: &str, parameters: Value) -> Value {
        self.last_id += 1;
        let mut message = json!({ "id": self.last_id, "method": method, "params": parameters });
        if let Some(session) = &self.session {
            message["sessionId"] = session.as_str().into();
        }
        let sent = self.requests.write_all(format!("{message}\0").as_bytes());
        sent.unwrap_or_else(|error| panic!("{method}: the browser is gone: {error}"));
        let started = Instant::now();
        loop {
            if let Some(mut answer) = self.hear(started, method) {
                assert!(answer.get("error").is_none(), "{message}\nfailed: {answer}");
                return answer["result"].take();
            }
        }
    }

    /// Waits for the next message: the answer to the last command, or an event, which is kept.
    fn hear(&mut self, started: Instant, waiting_for: &str) -> Option<Value> {
        let message = match self.answers.recv_timeout(PATIENCE.saturating_sub(started.elapsed())) {
            Ok(message) => message,
            Err(RecvTimeoutError::Timeout) => panic!("{waiting_for}: no answer in {PATIENCE:?}"),
            Err(RecvTimeoutError::Disconnected) => panic!("{waiting_for}: the browser ended"),
        };
        if message["id"] == self.last_id {
            return Some(message);
        }
        self.events.push(message);
        None
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // SAFETY: a plain system call; the group's founder has not been waited for, so its id is not reused.
        unsafe { libc::kill(-(self.process.id() as i32), libc::SIGKILL) };
        self.process.wait().ok();
        // The browser's other processes may write files until they notice.
        for _ in 0..50 {
            if std::fs::remove_dir_all(&self.folder).is_ok() || !self.folder.exists() {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn spawn(program: &Path, folder: &Path, reads: &PipeReader, writes: &PipeWriter) -> Child {
    let mut command = Command::new(program);
    command
        .args(["--headless", "--remote-debugging-pipe", "--no-first-run", "--no-default-browser-check"])
        // In a container there is neither a separate user for the sandbox nor a large /dev/shm.
        .args(["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"])
        // Requests that the browser makes by itself would be taken for the page's.
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--disable-extensions", "--no-proxy-server", "--password-store=basic"])
        .arg(format!("--user-data-dir={}", folder.display()))
        .arg("about:blank")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let (reads, writes) = (reads.as_raw_fd(), writes.as_raw_fd());
    // SAFETY: the closure makes only system calls, between fork and exec; both descriptors are open until `spawn`
    // returns.
    unsafe { command.pre_exec(move || hand_over(reads, writes)) };
    command.spawn().unwrap_or_else(|error| panic!("cannot start {}: {error}", program.display()))
}

/// Moves the browser's ends of the pipes to the descriptors where it looks for them.
fn hand_over(reads: RawFd, writes: RawFd) -> std::io::Result<()> {
    let check = |result| if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(result) };
    // First to other descriptors: either may already be 3 or 4, and would be overwritten or stay close-on-exec.
    // SAFETY: plain system calls on open descriptors.
    unsafe {
        let reads = check(libc::fcntl(reads, libc::F_DUPFD_CLOEXEC, 10))?;
        let writes = check(libc::fcntl(writes, libc::F_DUPFD_CLOEXEC, 10))?;
        check(libc::dup2(reads, 3))?;
        check(libc::dup2(writes, 4))?;
    }
    Ok(())
}

/// Receives the browser's messages, which a separate thread reads so that waiting for a message can time out.
fn receive(answers: PipeReader) -> Receiver<Value> {
    let (send, receive) = channel();
    std::thread::spawn(move || {
        for message in BufReader::new(answers).split(0).map_while(Result::ok) {
            let message = serde_json::from_slice(&message).expect("the browser speaks JSON");
            if send.send(message).is_err() {
                break;
            }
        }
    });
    receive
}

fn from_base64(text: &str) -> Vec<u8> {
    let value = |letter: u8| match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => panic!("not base64: {letter}"),
    };
    let letters: Vec<u8> = text.trim_end_matches('=').bytes().map(value).collect();
    let mut bytes = Vec::with_capacity(letters.len() * 3 / 4);
    for group in letters.chunks(4) {
        let bits =
            group.iter().enumerate().fold(0, |bits, (at, &six)| bits | u32::from(six) << (18 - 6 * at));
        bytes.extend(&bits.to_be_bytes()[1..group.len()]);
    }
    bytes
}
