//! Names for a profile of a stripped program.
//!
//! A stripped program writes addresses. `go tool pprof` finds their names in an unstripped copy, but not as we would: async
//! functions are `{async_fn#0}`, and the machinery of allocators, locks and std is shown. Here the copy is read by the code
//! that reads a running program's file, and each stack is shown as if the program had written it.

use std::io::{self, Read, Write};
use std::path::Path;

use flate2::Compression;
use flate2::read::MultiGzDecoder;
use flate2::write::GzEncoder;
use prost::Message as _;
use rtprof_runtime::modules::{ForeignModule, History};
use rtprof_symbols::locations::Locations;
use rtprof_symbols::object_file::{Image, hex};
use rtprof_symbols::symbol_cache::{FileState, Function, Line};
use rtprof_symbols::symbolizer::Symbolization;
use rtprof_symbols::view::View;

use crate::built_in::{CPU, HEAP};
use crate::functions::Functions;
use crate::location_ids::LocationIds;
use crate::proto::{self, Profile};
use crate::record::{Leaf, Record};
use crate::strings::StringTable;

/// Reads a profile that a stripped program has written (profile.proto, gzipped or not), adds the names, files and lines
/// of `binary`, and writes the result, gzipped. `binary` is an unstripped copy of the same build, or the file with its
/// debug information. Names that the profile has already stay as they are; the frames of allocators, locks and std are
/// hidden as in the profile of an unstripped program. Values, labels and the rest do not change. This is what the
/// command `rtprof symbolize` does.
///
/// The files of the program's libraries are read too where this machine has the same builds. Each call keeps some
/// hundred bytes for each of these files, and keeps the names in the cache of this process.
///
/// # Errors
/// - [`InvalidData`](io::ErrorKind::InvalidData) if `profile` is not a profile or has more than 512 MiB, or `binary` is not
///   an ELF file of the architecture for which this program is built.
/// - [`InvalidInput`](io::ErrorKind::InvalidInput) if `binary` is of another build (the error lists the build ids of the
///   profile), or has neither symbols nor debug information, or is no regular file.
/// - Those of reading and writing.
pub fn symbolize(profile: impl Read, binary: &Path, mut w: impl Write) -> io::Result<()> {
    let mut profile = decoded(profile)?;
    let named = Naming::new(&profile, &std::path::absolute(binary)?)?.named(&mut profile)?;
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&named.encode_to_vec())?;
    w.write_all(&gzip.finish()?)?;
    w.flush()
}

/// The most bytes of a profile that are read, packed or not. Those of large services have some MiB.
const MOST: u64 = 512 << 20;

fn decoded(profile: impl Read) -> io::Result<Profile> {
    let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, format!("not a profile: {why}"));
    let mut bytes = Vec::new();
    profile.take(MOST + 1).read_to_end(&mut bytes)?;
    if bytes.starts_with(&[0x1f, 0x8b]) {
        let mut plain = Vec::new();
        let mut unpacked = MultiGzDecoder::new(&*bytes).take(MOST + 1);
        unpacked.read_to_end(&mut plain).map_err(|error| invalid(error.to_string()))?;
        bytes = plain;
    }
    if bytes.len() as u64 > MOST {
        return Err(invalid("it has more than 512 MiB".to_owned()));
    }
    let profile = Profile::decode(&*bytes).map_err(|error| invalid(error.to_string()))?;
    check(&profile).map_err(|what| invalid(format!("{what} is missing")))?;
    Ok(profile)
}

/// Checks that everything exists to which the profile refers.
fn check(profile: &Profile) -> Result<(), &'static str> {
    let texts = profile.string_table.len() as i64;
    let has_text = |at: i64| (0..texts).contains(&at);
    let are_numbered = |ids: &mut dyn Iterator<Item = u64>| ids.zip(1..).all(|(id, number)| id == number);
    if profile.string_table.first().is_none_or(|text| !text.is_empty()) {
        return Err("the empty text");
    }
    // rtprof numbers everything from 1 on.
    if !are_numbered(&mut profile.mapping.iter().map(|mapping| mapping.id))
        || !are_numbered(&mut profile.location.iter().map(|location| location.id))
        || !are_numbered(&mut profile.function.iter().map(|function| function.id))
    {
        return Err("rtprof's numbering");
    }
    let (mappings, locations) = (profile.mapping.len() as u64, profile.location.len() as u64);
    let functions = 1..=profile.function.len() as u64;
    let lines = || profile.location.iter().flat_map(|location| &location.line);
    let places = || profile.sample.iter().flat_map(|sample| &sample.location_id);
    let labels = || profile.sample.iter().flat_map(|sample| &sample.label);
    let types = || profile.sample_type.iter().chain(&profile.period_type);
    // One for each location, besides those of the program.
    let has_room = locations < 1 << 32;
    let are_whole = has_room
        && profile.location.iter().all(|location| location.mapping_id <= mappings)
        && lines().all(|line| functions.contains(&line.function_id))
        && places().all(|id| (1..=locations).contains(id));
    let have_texts = labels().all(|label| [label.key, label.str, label.num_unit].into_iter().all(has_text))
        && types().all(|kind| [kind.r#type, kind.unit].into_iter().all(has_text))
        && profile.mapping.iter().all(|mapping| has_text(mapping.filename) && has_text(mapping.build_id))
        && profile.function.iter().all(|function| {
            [function.name, function.system_name, function.filename].into_iter().all(has_text)
        })
        && profile.comment.iter().copied().all(has_text)
        && [profile.drop_frames, profile.keep_frames, profile.default_sample_type].into_iter().all(has_text);
    match (are_whole, have_texts) {
        (true, true) => Ok(()),
        (false, _) => Err("something to which it refers"),
        (_, false) => Err("a text to which it refers"),
    }
}

/// The addresses of a profile, with their lines.
struct Naming {
    locations: Locations,
    /// Whether the names of each mapping are in the unstripped copy.
    programs: Vec<bool>,
    leaf: Leaf,
}

/// Where addresses begin that stand for locations of the profile. No program has addresses there.
///
/// A location that has lines keeps them, and only them: the profile may have several locations for one address, each with some
/// of its lines. So each such location goes by an address of its own, and so does one that the profile assigns to another
/// mapping than its address shows, because a library was unloaded.
const STANDS_FOR_LOCATION: usize = 1 << 63;

impl Naming {
    fn new(profile: &Profile, binary: &Path) -> io::Result<Self> {
        let image = Image::read(binary)
            .map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", binary.display())))?;
        let programs = mappings_of(profile, &image)?;
        let not_utf8 = || io::Error::new(io::ErrorKind::InvalidInput, "the path of the program is not UTF-8");
        let binary = binary.to_str().ok_or_else(not_utf8)?;
        let text = |at: i64| &*profile.string_table[at as usize];
        let module = |(mapping, is_program): (&proto::Mapping, &bool)| {
            let path = if *is_program { binary } else { text(mapping.filename) };
            ForeignModule {
                path: path.to_owned(),
                start: mapping.memory_start as usize,
                limit: mapping.memory_limit as usize,
                file_offset: mapping.file_offset,
                bias: if *is_program { bias(mapping, &image) } else { bias_of_library(mapping, path) },
                build_id: from_hex(text(mapping.build_id)),
            }
        };
        let modules = profile.mapping.iter().zip(&programs).map(module).collect();
        let view = View { symbolization: Symbolization::Full, ..View::default() };
        let mut locations = Locations::of_another_process(History::of_another_process(modules), view);
        for (number, location) in profile.location.iter().enumerate() {
            if !is_looked_up(profile, location, &programs, &locations) {
                let lines = location.line.iter().map(|line| known(profile, line)).collect();
                let module = (location.mapping_id as usize).checked_sub(1);
                locations.set_lines(STANDS_FOR_LOCATION + number, module, lines);
            }
        }
        Ok(Self { locations, programs, leaf: leaf(profile) })
    }

    /// Returns the profile with the lines of its addresses, and without what is hidden.
    fn named(mut self, profile: &mut Profile) -> io::Result<Profile> {
        let address = |id: &u64| {
            let number = *id as usize - 1;
            let location = &profile.location[number];
            match is_looked_up(profile, location, &self.programs, &self.locations) {
                true => return_address(location),
                false => STANDS_FOR_LOCATION + number,
            }
        };
        let record = |sample: &proto::Sample| {
            Record::new(sample.location_id.iter().map(address).collect::<Vec<usize>>(), self.leaf, [0; 2])
        };
        let records: Vec<Record> = profile.sample.iter().map(record).collect();
        self.locations.prepare(records.iter().flat_map(Record::stacks));
        let mut ids = LocationIds::default();
        for (sample, record) in profile.sample.iter_mut().zip(&records) {
            if !record.stack.is_empty() {
                let visible = record.frames(&mut self.locations).visible;
                sample.location_id.clear();
                ids.ids(&self.locations, visible, &mut sample.location_id);
            }
        }
        let mut functions = Functions::default();
        let original = |mut location: proto::Location| {
            if let Some(number) = (location.address as usize + 1).checked_sub(STANDS_FOR_LOCATION) {
                location.address = profile.location[number].address;
            }
            location
        };
        let location = ids.encoded(&self.locations, &mut functions).map(original).collect();
        let states = (0..profile.mapping.len()).map(|at| self.locations.file_state(at));
        let states: Vec<_> =
            states.zip(&self.programs).map(|(state, of_program)| of_program.then_some(state)).collect();
        let has_names = |state: &FileState| state.has_symbol_table || state.has_lines();
        if self.was_asked(&records) && !states.iter().flatten().any(has_names) {
            let message = "the file has neither symbols nor debug information";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let mut named = Profile { location, function: Vec::new(), ..std::mem::take(profile) };
        for (mapping, state) in named.mapping.iter_mut().zip(states) {
            let Some(state) = state else { continue };
            mapping.has_functions |= state.has_symbol_table;
            mapping.has_filenames |= state.has_lines();
            mapping.has_line_numbers |= state.has_lines();
            mapping.has_inline_frames |= state.has_inlined_functions();
        }
        let mut strings = StringTable::new();
        change_texts(&mut named, &mut strings);
        named.function = functions.encoded(&mut strings).collect();
        named.string_table = strings.texts().iter().map(|text| text.to_string()).collect();
        let texts = &named.string_table;
        named.comment.retain(|comment| !texts[*comment as usize].contains(STRIPPED));
        Ok(named)
    }

    /// Whether an address of the program was looked up.
    fn was_asked(&self, records: &[Record]) -> bool {
        let is_programs = |address: &usize| {
            let owner = self.locations.owner(*address);
            *address < STANDS_FOR_LOCATION && owner.is_some_and(|owner| self.programs[owner])
        };
        records.iter().any(|record| record.stack.iter().any(is_programs))
    }
}

/// Whether the lines of a location are looked up. Without a build id a library of the same name may be of another build.
fn is_looked_up(
    profile: &Profile,
    location: &proto::Location,
    programs: &[bool],
    locations: &Locations,
) -> bool {
    let is_address = location.address < (STANDS_FOR_LOCATION - 1) as u64;
    let Some(mapping) = (location.mapping_id as usize).checked_sub(1) else { return false };
    let has_build_id = || !profile.string_table[profile.mapping[mapping].build_id as usize].is_empty();
    location.line.is_empty()
        && is_address
        && (programs[mapping] || has_build_id())
        && locations.owner(return_address(location)) == Some(mapping)
}

/// What the comment says that is no longer true.
const STRIPPED: &str = "is stripped: give go tool pprof an unstripped copy";

/// Returns which mappings of a profile have the build id of this file. Where neither has a build id it is the first mapping, the
/// program.
fn mappings_of(profile: &Profile, image: &Image) -> io::Result<Vec<bool>> {
    let build_ids =
        || profile.mapping.iter().map(|mapping| &*profile.string_table[mapping.build_id as usize]);
    let wanted = hex(&image.build_id);
    let is_it = |(at, build_id): (usize, &str)| build_id == wanted && (at == 0 || !wanted.is_empty());
    let found: Vec<bool> = build_ids().enumerate().map(is_it).collect();
    if found.contains(&true) {
        return Ok(found);
    }
    let wanted = if wanted.is_empty() { "no build id" } else { &wanted };
    let listed: Vec<String> = profile
        .mapping
        .iter()
        .zip(build_ids())
        .filter(|(_, build_id)| !build_id.is_empty())
        .map(|(mapping, build_id)| {
            format!("{build_id} of {}", profile.string_table[mapping.filename as usize])
        })
        .collect();
    let message = format!(
        "the file has {wanted}, and is not of a build in the profile, which has the build ids {}",
        listed.join(", ")
    );
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

/// Returns the run-time address less the address in the file's own numbering. Mappings begin at whole pages.
fn bias(mapping: &proto::Mapping, image: &Image) -> usize {
    const WITHIN_PAGE: u64 = 4095;
    let is_it = |(offset, _): &&(u64, u64)| offset & !WITHIN_PAGE == mapping.file_offset;
    // A file with debug information alone may have its segments elsewhere.
    let address = image.code.iter().find(is_it).or(image.code.first()).map_or(0, |(_, address)| *address);
    mapping.memory_start.wrapping_sub(address & !WITHIN_PAGE) as usize
}

fn bias_of_library(mapping: &proto::Mapping, path: &str) -> usize {
    let path = Path::new(path);
    let image = path.is_absolute().then(|| Image::read(path).ok()).flatten();
    image.map_or(0, |image| bias(mapping, &image))
}

fn from_hex(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks_exact(2);
    digits.filter_map(|pair| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok()).collect()
}

/// Returns the address to which the call at a location returns.
fn return_address(location: &proto::Location) -> usize {
    location.address.wrapping_add(1) as usize
}

/// Returns a line that the profile knows.
fn known(profile: &Profile, line: &proto::Line) -> Line {
    let text = |at: i64| profile.string_table[at as usize].as_str().into();
    let function = &profile.function[line.function_id as usize - 1];
    let function = Function {
        name: text(function.name),
        system_name: text(function.system_name),
        file: text(function.filename),
    };
    let number = |number: i64| number.try_into().unwrap_or(0);
    Line { function: function.into(), line: number(line.line), column: number(line.column) }
}

/// Returns what is hidden at the leaf of the profile's stacks.
fn leaf(profile: &Profile) -> Leaf {
    let text = |at: i64| &*profile.string_table[at as usize];
    let types = || profile.sample_type.iter().map(|kind| (text(kind.r#type), text(kind.unit)));
    match profile.drop_frames {
        _ if types().eq(HEAP.description.sample_types.iter().copied()) => Leaf::Allocator,
        _ if types().eq(CPU.description.sample_types.iter().copied()) => Leaf::Call,
        // The caller of a custom profile has skipped what it wanted.
        0 => Leaf::Skip(0),
        _ => Leaf::Hooks,
    }
}

/// Moves all texts of the profile, but those of functions, to `strings`.
fn change_texts(profile: &mut Profile, strings: &mut StringTable) {
    let places: Vec<i64> = profile.string_table.iter().map(|text| strings.index(text)).collect();
    let change = |at: &mut i64| *at = places[*at as usize];
    for kind in profile.sample_type.iter_mut().chain(&mut profile.period_type) {
        change(&mut kind.r#type);
        change(&mut kind.unit);
    }
    for label in profile.sample.iter_mut().flat_map(|sample| &mut sample.label) {
        change(&mut label.key);
        change(&mut label.str);
        change(&mut label.num_unit);
    }
    for mapping in &mut profile.mapping {
        change(&mut mapping.filename);
        change(&mut mapping.build_id);
    }
    profile.comment.iter_mut().for_each(change);
    change(&mut profile.drop_frames);
    change(&mut profile.keep_frames);
    change(&mut profile.default_sample_type);
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn error(profile: &[u8], binary: &str) -> io::Error {
        symbolize(profile, Path::new(binary), io::sink()).unwrap_err()
    }

    #[test]
    fn what_is_no_profile_is_refused() {
        let own = std::env::current_exe().unwrap();
        let own = own.to_str().unwrap();
        for bytes in [&b""[..], b"heap profile: 1: 2 [3: 4]", &[0x1f, 0x8b, 8, 0, 1, 2, 3]] {
            let error = error(bytes, own);
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
            assert!(error.to_string().starts_with("not a profile: "), "{error}");
        }
        let mut profile = Profile { string_table: vec![String::new()], ..Profile::default() };
        profile.sample.push(proto::Sample { location_id: vec![1], ..proto::Sample::default() });
        let error = error(&profile.encode_to_vec(), own);
        assert!(error.to_string().ends_with("something to which it refers is missing"), "{error}");
    }

    /// The names are those that the program would have written, and the rest stays.
    #[test]
    fn addresses_get_their_names() {
        let mut addresses = Vec::new();
        let threads = crate::lookup("goroutine").unwrap().snapshot().unwrap();
        threads.write_proto(&mut addresses, Symbolization::None).unwrap();
        let own = std::env::current_exe().unwrap();
        // As people give it: relative.
        let up = std::env::current_dir().unwrap().components().skip(1).map(|_| "..").collect::<PathBuf>();
        let relative = up.join(own.strip_prefix("/").unwrap());
        let mut named = Vec::new();
        symbolize(&*addresses, &relative, &mut named).unwrap();
        let (addresses, named) = (decoded(&*addresses).unwrap(), decoded(&*named).unwrap());
        let names = |profile: &Profile| {
            let name = |function: &proto::Function| profile.string_table[function.name as usize].clone();
            profile.function.iter().map(name).collect::<Vec<_>>()
        };
        assert_eq!(names(&addresses), [""; 0]);
        let names = names(&named);
        let has = |function: &str| names.iter().any(|name| name == function);
        assert!(has("rtprof_pprof_out::symbolize::tests::addresses_get_their_names"), "{names:#?}");
        let is_startup = |name: &String| name.contains("lang_start") || name.contains("thread_start");
        assert!(has("thread start") && has("main") && !names.iter().any(is_startup), "{names:#?}");
        assert!(
            named.mapping[0].has_functions && named.mapping[0].has_line_numbers,
            "{:?}",
            named.mapping[0]
        );
        let values = |profile: &Profile| {
            profile.sample.iter().map(|sample| (sample.value.clone(), sample.label.len())).collect::<Vec<_>>()
        };
        assert_eq!(values(&named), values(&addresses));
        assert_eq!((named.time_nanos, named.period), (addresses.time_nanos, addresses.period));
        let file = |profile: &Profile| profile.string_table[profile.mapping[0].filename as usize].clone();
        assert_eq!(file(&named), file(&addresses));
    }

    #[test]
    fn another_build_is_refused() {
        let profile = Profile { string_table: vec![String::new()], ..Profile::default() };
        let bytes = profile.encode_to_vec();
        let own = std::env::current_exe().unwrap();
        let other = error(&bytes, own.to_str().unwrap());
        assert_eq!(other.kind(), io::ErrorKind::InvalidInput, "{other}");
        assert!(other.to_string().contains("is not of a build in the profile"), "{other}");
        assert_eq!(error(&bytes, "/dev/null").kind(), io::ErrorKind::InvalidInput);
        assert_eq!(error(&bytes, "/proc/self/maps").kind(), io::ErrorKind::InvalidData);
        assert_eq!(error(&bytes, "/nonexistent").kind(), io::ErrorKind::NotFound);
    }
}
