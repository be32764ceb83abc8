use super::*;
use crate::lookup;

#[test]
fn the_caller_begins_where_two_captures_agree() {
    assert_eq!(caller_stack(&[1, 2, 3, 9, 8], &[1, 2, 4, 9, 8]), [9, 8]);
    assert_eq!(caller_stack(&[3, 9, 8], &[4, 9, 8]), [9, 8]);
    assert_eq!(caller_stack(&[9, 8], &[9, 8]), [9, 8]);
    assert_eq!(caller_stack(&[3], &[4]), [3]);
}

#[inline(never)]
fn opener(profile: &Profile, key: usize) {
    std::hint::black_box(profile.add(key, 0)).unwrap();
}

#[inline(never)]
fn outer_opener(profile: &Profile, key: usize) {
    std::hint::black_box(profile.add(key, 1)).unwrap();
}

#[inline(never)] // Debug information may lack the module of an inlined function.
fn opener_of_opener(profile: &Profile, key: usize) {
    outer_opener(black_box(profile), key);
    black_box(());
}

#[inline(never)]
fn skips_all(profile: &Profile, key: usize) {
    std::hint::black_box(profile.add(key, usize::MAX)).unwrap();
}

#[test]
fn a_stack_begins_where_the_caller_says() {
    let profile = Profile::new("test/places").unwrap();
    // Hides the count from the optimizer, which would unroll the loop into three places.
    for key in 0..black_box(3) {
        opener(&profile, key);
    }
    opener_of_opener(&profile, 3);
    let text_now = || {
        let mut text = Vec::new();
        profile.write_to(&mut text as &mut dyn Write, 1).unwrap();
        String::from_utf8(text).unwrap()
    };
    let text = text_now();
    let mut paragraphs = text.split("\n\n");
    let leaf = |paragraph: &str| {
        let line = paragraph.lines().find(|line| line.starts_with('#')).unwrap();
        line.split('\t').nth(2).unwrap().split('+').next().unwrap().to_owned()
    };
    let first = paragraphs.next().unwrap();
    assert!(first.starts_with("test/places profile: total 4\n3 @ 0x"), "{first}");
    assert_eq!(leaf(first), "rtprof_pprof_out::profile::tests::opener");
    let second = paragraphs.next().unwrap();
    assert_eq!(leaf(second), "rtprof_pprof_out::profile::tests::opener_of_opener");

    // Only the outermost function is left, but there is still a stack.
    for key in 0..4 {
        profile.remove(key);
    }
    skips_all(&profile, 9);
    let text = text_now();
    let first = text.split("\n\n").next().unwrap();
    assert_eq!(first.lines().filter(|line| line.starts_with('#')).count(), 1, "{first}");
}

/// Adds a thing at each write.
struct Adding<'a>(&'a Profile, usize);

impl Write for Adding<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.1 += 1;
        self.0.add(self.1, 0).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_writer_may_use_the_profile_it_gets() {
    let profile = Profile::new("test/adding").unwrap();
    for debug in [0, 1] {
        let before = profile.count();
        profile.write_to(&mut Adding(&profile, before), debug).unwrap();
        assert!(profile.count() > before);
    }
}

#[test]
fn misuse_is_named() {
    let heap = lookup("heap").unwrap();
    let error = heap.add(1, 0).unwrap_err();
    assert_eq!(error, ProfileError::BuiltIn("heap".into()));
    assert!(error.to_string().contains("Profile::new"));
    heap.remove(1);

    assert_eq!(Profile::new("").unwrap_err(), ProfileError::EmptyName);
    assert!(matches!(Profile::new("a b"), Err(ProfileError::InvalidName(_))));
    assert!(matches!(Profile::new("allocs"), Err(ProfileError::NameTaken(_))));

    let own = Profile::new("test/misuse").unwrap();
    let taken = Profile::new("test/misuse").unwrap_err();
    assert!(taken.to_string().contains("lookup(\"test/misuse\")"), "{taken}");
    own.add(1, 0).unwrap();
    let twice = own.add(1, 0).unwrap_err();
    assert!(twice.to_string().contains("0x1"), "{twice}");
    own.remove(2);
    assert_eq!(own.count(), 1);
    own.remove(1);
    own.add(1, 0).unwrap();
    assert_eq!(lookup("test/misuse").unwrap().count(), 1);
}
