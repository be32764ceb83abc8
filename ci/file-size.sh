#!/usr/bin/env bash
# No Rust file over 400 lines: one noun or one verb each.
set -euo pipefail
cd "$(dirname "$0")/.."

long="$(git ls-files --cached --others --exclude-standard '*.rs' | sort -u |
    while read -r file; do
        [[ -f "$file" ]] || continue
        lines="$(wc -l <"$file")"
        ((lines <= 400)) || echo "$file: $lines lines"
    done)"
if [[ -n "$long" ]]; then
    echo "over 400 lines:" >&2
    echo "$long" >&2
    exit 1
fi
