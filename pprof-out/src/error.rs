//! Errors of profiles.

use std::fmt;

/// Why a profile could not be made, or a thing could not be added to one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProfileError {
    /// The name was empty.
    EmptyName,
    /// The name cannot be printed on one line without quotes: it holds white space or a control character.
    InvalidName(String),
    /// A profile of this name exists already.
    NameTaken(String),
    /// The key was added to this profile before and has not been removed since.
    DuplicateKey {
        /// The profile's name.
        profile: String,
        /// The key.
        key: usize,
    },
    /// The profile is filled by rtprof itself.
    BuiltIn(String),
    /// This process was forked while another thread of its parent was changing the profile, which is
    /// therefore unusable here.
    LostInFork,
}

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EmptyName => f.write_str("a profile needs a name; give one that is not empty"),
            Self::InvalidName(name) => write!(
                f,
                "the profile name {name:?} holds white space or a control character; use letters, digits, \
                 '.', '/' and '_', as in \"app/open_files\""
            ),
            Self::NameTaken(name) => write!(
                f,
                "there is already a profile named {name:?}; find it with lookup({name:?}) or choose another name"
            ),
            Self::DuplicateKey { profile, key } => write!(
                f,
                "the profile {profile:?} holds the key {key:#x} already; remove it before adding it again"
            ),
            Self::BuiltIn(name) => write!(
                f,
                "the profile {name:?} is kept by rtprof and takes nothing from outside; make one of your own with \
                 Profile::new"
            ),
            Self::LostInFork => f.write_str(
                "a thread of the parent process was changing this profile when this process was forked; fork \
                 before starting threads, or use it in the parent",
            ),
        }
    }
}

impl std::error::Error for ProfileError {}
