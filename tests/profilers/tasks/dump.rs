//! Parses the goroutine profile in the form `debug=2`.

use std::collections::HashMap;

use rtprof::pprof::lookup;

/// A frame: the function, the end of the file's path, and the line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) function: String,
    pub(crate) file: String,
    pub(crate) line: usize,
}

/// A goroutine.
#[derive(Clone, Debug)]
pub(crate) struct Dumped {
    pub(crate) id: u64,
    /// The text in brackets: `await, 3 minutes`.
    pub(crate) state: String,
    /// The line about the goroutine, after its id: `task "name", polled 2 times`.
    pub(crate) about: String,
    /// Leaf first.
    pub(crate) frames: Vec<Frame>,
    pub(crate) created_by: Option<Frame>,
    /// The further stacks that it awaits on.
    pub(crate) branches: Vec<Vec<Frame>>,
}

impl Dumped {
    /// Returns the lines of a function on its stacks, without those of macros in other files.
    pub(crate) fn lines_in(&self, function: &str, file: &str) -> Vec<usize> {
        let all = self.frames.iter().chain(self.branches.iter().flatten());
        all.filter(|frame| frame.function.contains(function) && frame.file == file)
            .map(|frame| frame.line)
            .collect()
    }
}

/// Returns all goroutines, in the order of the text.
pub(crate) fn take() -> Vec<Dumped> {
    let mut text = Vec::new();
    lookup("goroutine").expect("it is there").write_to(&mut text, 2).expect("memory can be written");
    parse(&String::from_utf8(text).expect("it is text"))
}

/// Returns all tasks, by their names.
pub(crate) fn tasks() -> HashMap<String, Dumped> {
    let name = |task: &Dumped| Some(task.about.strip_prefix("task \"")?.split('"').next()?.to_owned());
    take().into_iter().filter_map(|task| Some((name(&task)?, task))).collect()
}

fn parse(text: &str) -> Vec<Dumped> {
    let mut all: Vec<Dumped> = Vec::new();
    let mut about: HashMap<u64, String> = HashMap::new();
    for part in text.split("\n\n") {
        let (head, rest) = part.split_once('\n').unwrap_or((part, ""));
        if let Some(line) = head.strip_prefix("# goroutine ") {
            if let Some(id) = line.strip_suffix(" awaits also:") {
                let last = all.last_mut().expect("a goroutine comes first");
                assert_eq!(last.id.to_string(), id);
                let lines: String = rest.lines().map(|line| format!("{}\n", &line[2..])).collect();
                last.branches.push(frames(&lines).0);
            } else if let Some((id, line)) = line.split_once(": ") {
                about.insert(id.parse().expect("a number"), line.to_owned());
            }
        } else if let Some(line) = head.strip_prefix("goroutine ") {
            let (id, state) = line.split_once(" [").expect("a state");
            let state = state.strip_suffix("]:").expect("a header").to_owned();
            let (frames, created_by) = frames(rest);
            let id = id.parse().expect("a number");
            let branches = Vec::new();
            all.push(Dumped { id, state, about: String::new(), frames, created_by, branches });
        }
    }
    for goroutine in &mut all {
        goroutine.about = about.remove(&goroutine.id).unwrap_or_default();
    }
    all
}

fn frames(text: &str) -> (Vec<Frame>, Option<Frame>) {
    let lines: Vec<&str> = text.lines().collect();
    let (mut frames, mut created_by) = (Vec::new(), None);
    for pair in lines.chunks_exact(2) {
        let place = pair[1].trim().split(' ').next().expect("a place");
        let (file, line) = place.rsplit_once(':').expect("a line");
        let file = file.rsplit('/').next().unwrap_or(file).to_owned();
        let line = line.parse().expect("a number");
        match pair[0].strip_prefix("created by ") {
            Some(function) => created_by = Some(Frame { function: function.to_owned(), file, line }),
            None => {
                let function = closures_by_one_scheme(pair[0].strip_suffix("(...)").expect("a function"));
                frames.push(Frame { function, file, line });
            }
        }
    }
    (frames, created_by)
}

/// Converts the names of closures to the old scheme: `{{closure}}` and not `{closure#0}`.
fn closures_by_one_scheme(function: &str) -> String {
    let mut name = function.to_owned();
    for number in 0..10 {
        name = name.replace(&format!("{{closure#{number}}}"), "{{closure}}");
    }
    name
}
