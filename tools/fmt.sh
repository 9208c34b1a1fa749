#!/usr/bin/env bash
# Formats all Go files of the repository.
. "$(dirname "$0")/lib.sh"

"$root/tools/devtools.sh"
go_files | xargs -r gofumpt -w
