#!/usr/bin/env bash
# Runs tests on real parts, of some packages of a module.
#   suite.sh MODULE PACKAGE... [-- more flags of go test]
# The machines are shared: a test that fails is run once more, on a bed of its own, to tell chance from a fault. More
# than four failures, or a panic, are no chance and aren't run again. A test that passes at its second run fails the
# suite too, unless test/flakes.txt (or the file that FLAKES names) has it with the text of an issue, or FORGIVEN is
# more than 0: then test.sh counts them.
. "$(dirname "$0")/lib.sh"
module=$1
shift
packages=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do
  packages+=("$1")
  shift
done
[ $# -eq 0 ] || shift
known=${FLAKES:-$root/test/flakes.txt}

gotestsum=$(GOWORK=off go -C "$root/tools" tool -n gotestsum)
twice=$(mktemp)
said=$(mktemp)
trap 'rm -f "$twice" "$said"' EXIT
cd "$module"
code=0
# -count=1: the tests are of executables that go's cache of results knows nothing of. -vet=off: make check has vetted
# them. Packages go one after the other: how many go side by side is for test.sh to say.
GOWORK=off "$gotestsum" --format testname --hide-summary skipped,output \
  --rerun-fails=1 --rerun-fails-max-failures=4 --rerun-fails-run-root-test --rerun-fails-report="$twice" \
  --packages "${packages[*]}" -- -count=1 -vet=off -p 1 -timeout 40m "$@" |
  tee "$said" || code=$?

# What fails without one of its tests, in TestMain, has no test to run again: its second run shows nothing.
while read -r package; do
  if ! grep -qF "FAIL $package.Test" "$said"; then
    echo "FAILED OUTSIDE ITS TESTS: $package; what it printed is above"
    code=1
  fi
done < <(sed -n 's/^FAIL \([^ ]*\)$/\1/p' "$said" | sort -u)

path=$(GOWORK=off go list -m)
# The report has a line for each test that was run again: "package.Test: 2 runs, 1 failures".
declare -A told=()
while read -r name runs _ failures _; do
  # One that never passed is named by gotestsum itself.
  [ "$runs" != "$failures" ] || continue
  name=${name%:}
  # A package's path may have dots; a test's name has none, though its sub-tests' may.
  package=${name%.Test*}
  top=Test${name##*.Test}
  top=${top%%/*}
  # Its sub-tests are listed too.
  [ -z "${told[$package.$top]:-}" ] || continue
  told[$package.$top]=yes
  name=$package.$top
  if grep -q "^$package\.$top [^ ]" "$known"; then
    echo "SECOND RUN: $name; known: $(grep "^$package\.$top " "$known" | cut -d' ' -f2-)"
    continue
  fi
  echo "SECOND RUN: $name failed at first; what it printed is above:" \
    "mend it, or name it in ${known#"$root"/} with an issue."
  echo "  alone: GOWORK=off go -C ${module#"$root"/} test .${package#"$path"} -count=1 -v -run '^$top\$'"
  [ "${FORGIVEN:-0}" -gt 0 ] || code=1
done < <(grep ': [0-9]* runs, [0-9]* failures' "$twice" || true)

# A test's own words come before pages of daemons' logs, so they are told once more at the end.
if [ $code -ne 0 ] || [ ${#told[@]} -gt 0 ]; then
  echo "WHAT FAILED, and where:"
  grep -E '^ *(--- FAIL: |[A-Za-z0-9_]+\.go:[0-9]+: |panic: )' "$said" | cut -c -300 | tail -n 60 || true
fi
exit $code
