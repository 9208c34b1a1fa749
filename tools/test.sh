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

need_root test
programs
gotestsum=$(GOWORK=off go -C "$root/tools" tool -n gotestsum)
twice=$(mktemp -d)
trap 'rm -rf "$twice"' EXIT

# end_to_end runs a test module. These machines are shared: a test that fails is run once more, on a bed of its own, and named
# at the end. More than four failures, or a panic, are no noise and aren't run again.
# -count=1: the tests are of executables that go's cache of results knows nothing of.
end_to_end() {
  cd "$1" || return
  GOWORK=off "$gotestsum" --format testname --hide-summary skipped,output \
    --rerun-fails=1 --rerun-fails-max-failures=4 --rerun-fails-run-root-test --rerun-fails-report="$twice/${1##*/}" \
    --packages ./... -- -count=1 -p 1 -timeout 30m
}

idle() { KUBELOT_BIN=$bin go -C "$root/crew" test -count=1 -run TestIdleDaemonsAreSmall .; }
try "memory of idle daemons" idle

for dir in $(test_modules); do
  try "tests of ${dir#"$root"/}" end_to_end "$dir"
done
if cat "$twice"/* 2>/dev/null | grep .; then say "^ RUN TWICE: these failed once; what each printed is above"; fi
verdict test
