#!/usr/bin/env bash
# Runs the tests: first the product's modules, in one go, then each test module, which start real programs.
. "$(dirname "$0")/lib.sh"

patterns() { modules | sed 's|$|/...|'; }

unit() {
  # shellcheck disable=SC2046 # one pattern per module
  go -C "$root" test "$@" $(patterns)
}

try "unit tests" unit
if [ "${1:-}" = --unit ]; then
  verdict test
  exit
fi

if [ "$(id -u)" -ne 0 ]; then
  say "end-to-end tests need root: run make test as root"
  exit 1
fi
step "build" "$root/tools/build.sh"
step "test bed's programs" testbed_tools
for dir in $(test_modules); do
  # -count=1: they test executables that go's cache of results knows nothing of.
  try "tests of ${dir#"$root"/}" env GOWORK=off go -C "$dir" test -count=1 -p 1 -timeout 30m ./...
done
verdict test
