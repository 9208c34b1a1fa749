#!/usr/bin/env bash
# Runs the benchmark in test/bench: bare CRI calls and kubelot in the same run.
. "$(dirname "$0")/lib.sh"

need_root bench
programs
cd "$root/test/bench"
GOWORK=off exec go run ./cmd/bench "$@"
