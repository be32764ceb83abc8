# Sourced by checks that build in release mode. What runs in hooks is compiled as users compile it, without LTO; all else
# with little optimisation, which takes a third of the time to compile.
export CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_OPT_LEVEL=1
# An empty RUSTFLAGS puts aside the flag of .cargo/config.toml. These checks share what they compile, in a folder that no other
# check uses, because other flags rebuild everything.
without_frame_pointers() { export RUSTFLAGS="" CARGO_TARGET_DIR="$PWD/target/no-frame-pointers"; }
