"""Decodes Perfetto traces with Perfetto's definitions, and says which have fields that these do not know.

    PYTHONPATH=target/perfetto python3 ci/decode_perfetto.py FILE|FOLDER...
"""

import pathlib
import sys

from perfetto.protos.perfetto.trace import perfetto_trace_pb2


def fault(path):
    """Returns what is wrong with a file, or None."""
    trace = perfetto_trace_pb2.Trace()
    content = path.read_bytes()
    trace.ParseFromString(content)
    size = trace.ByteSize()
    if size != len(content):
        return f"it has {len(content)} bytes, but {size} were understood"
    if not any(packet.HasField("track_event") for packet in trace.packet):
        return "it has no event"
    # This goes through the messages in them as well.
    trace.DiscardUnknownFields()
    if trace.ByteSize() != size:
        return f"{size - trace.ByteSize()} bytes are unknown fields"
    return None


def main():
    files = []
    for path in map(pathlib.Path, sys.argv[1:]):
        files += sorted(path.glob("*.perfetto-trace")) if path.is_dir() else [path]
    if not files:
        sys.exit(f"no trace in {sys.argv[1:]}")
    faults = 0
    for path in files:
        what = fault(path)
        if what:
            faults += 1
            print(f"{path}: {what}", file=sys.stderr)
    size = sum(path.stat().st_size for path in files)
    print(f"{len(files)} traces, {size / 2**20:.1f} MiB, decoded with Perfetto's definitions: {faults} faults")
    sys.exit(faults > 0)


if __name__ == "__main__":
    main()
