#!/usr/bin/env bash
# Formats all Go files of the repository.
. "$(dirname "$0")/lib.sh"

"$root/tools/devtools.sh"
git -C "$root" ls-files '*.go' | sed "s|^|$root/|" | xargs -r gofumpt -w
