//! The hierarchy of tasks.

use std::collections::HashMap;

use super::event::EventType;
use super::parse::RawEvent;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Visit {
    Open,
    Done,
}

/// Returns the first task that is its own ancestor. The viewer would follow its parents and children for ever.
pub(crate) fn own_ancestor(events: &[RawEvent]) -> Option<u64> {
    // An id that is reused may have several parents.
    let mut parents: HashMap<u64, Vec<u64>> = HashMap::new();
    let mut tasks = Vec::new();
    for event in events.iter().filter(|event| event.event == EventType::UserTaskCreate) {
        let [task, parent, ..] = event.args;
        if parent != 0 {
            parents.entry(task).or_default().push(parent);
            tasks.push(task);
        }
    }
    let mut visits: HashMap<u64, Visit> = HashMap::new();
    for task in tasks {
        // The chain of tasks towards the root, each with the number of its parents that were examined. Not recursive,
        // because the chain in a file may be arbitrarily long.
        let mut way = vec![(task, 0)];
        while let Some(&mut (task, ref mut next)) = way.last_mut() {
            if *next == 0 && visits.get(&task) == Some(&Visit::Done) {
                way.pop();
                continue;
            }
            visits.insert(task, Visit::Open);
            let Some(&parent) = parents.get(&task).and_then(|parents| parents.get(*next)) else {
                visits.insert(task, Visit::Done);
                way.pop();
                continue;
            };
            *next += 1;
            match visits.get(&parent) {
                Some(Visit::Open) => return Some(parent),
                Some(Visit::Done) => {}
                None => way.push((parent, 0)),
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(tasks: &[(u64, u64)]) -> Option<u64> {
        let event = |&(task, parent): &(u64, u64)| RawEvent {
            event: EventType::UserTaskCreate,
            p: 0,
            g: 1,
            tick: 0,
            args: [task, parent, 0, 0],
            message: 0,
            offset: 0,
        };
        own_ancestor(&tasks.iter().map(event).collect::<Vec<_>>())
    }

    #[test]
    fn circles_are_found_and_nothing_else() {
        assert_eq!(find(&[(1, 0), (2, 1), (3, 1), (4, 3), (4, 2), (5, 99)]), None);
        assert_eq!(find(&[(1, 1)]), Some(1));
        assert_eq!(find(&[(1, 0), (2, 3), (3, 4), (4, 2)]), Some(2));
        assert_eq!(find(&[(1, 2), (2, 0), (1, 3), (3, 1)]), Some(1));
        let long: Vec<_> = (1..100_000).map(|task| (task, task + 1)).collect();
        assert_eq!(find(&long), None);
        assert_eq!(find(&[&long[..], &[(100_000, 7)]].concat()), Some(7));
    }
}
