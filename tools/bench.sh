#!/usr/bin/env bash
# Runs the benchmark in test/bench: bare CRI calls and kubelot in the same run.
. "$(dirname "$0")/lib.sh"

if [ ! -f "$root/test/bench/go.mod" ]; then
  echo "test/bench is missing"
  exit 1
fi
step "build kubelot" "$root/tools/build.sh"
step "test bed's programs" testbed_tools
cd "$root/test/bench"
GOWORK=off exec go run ./cmd/bench "$@"
