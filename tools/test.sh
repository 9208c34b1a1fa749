#!/usr/bin/env bash
# Runs the tests: first those of the product's modules, in one go, then the suites on real parts, several side by side.
# LANES says how many suites run at a time: they wait more than they compute. The end says how busy the processors were.
# BUDGET is for continuous integration, which ends after a fixed time: a suite whose turn comes later than so many
# seconds after the start isn't run, and the end says so. FORGIVEN is how many tests may pass at their second run only,
# over all suites; without it none may.
# With --unit it runs the unit tests alone. With --compact it runs the crash suite alone, or those of its tests that
# FOCUS names, on the crew in one process.
. "$(dirname "$0")/lib.sh"

patterns() { modules | sed 's|$|/...|'; }

# Not vetted: make check does that, the linters' part of it. One package more than processors, since the tests of some
# wait: those of bus/embed for 40 s.
unit() {
  # shellcheck disable=SC2046 # one pattern per module
  go -C "$root" test -vet=off -timeout 30m -p $(($(nproc) + 1)) "$@" $(patterns)
}
packager() { GOWORK=off go -C "$root/tools/packages" test -vet=off ./...; }
units() {
  try "unit tests" unit
  try "unit tests of the packager" packager
}

if [ "${1:-}" = --unit ]; then
  units
  verdict test
  exit
fi

if [ "${1:-}" = --compact ]; then
  need_root test-compact
  programs --tests
  try "the crash suite on one process" env KUBELOT_LAYOUT=compact "$root/tools/suite.sh" "$root/test" ./e2e/crash \
    ${FOCUS:+-- -run "$FOCUS"}
  verdict test-compact
  exit
fi

need_root test
# First, as some unit tests run what Debian's packages have.
programs --tests
# For the tests of kubelot ui.
try "a browser" need chromium=chromium
# For the growth of volumes in use.
try "xfs" need mkfs.xfs=xfsprogs
units

# A compiler next to a suite takes the processors from its pods, so the suites are compiled before they begin.
suites_compiled() {
  local dir
  for dir in "$root/test" "$root/test/differential"; do
    GOWORK=off go -C "$dir" list -test -export ./... >/dev/null || return
  done
}
try "compile the suites" suites_compiled

idle() { KUBELOT_BIN=$bin go -C "$root/crew" test -count=1 -run '^Test(IdleDaemonsAreSmall|GroupsOfRealDaemons)$' .; }
# By itself: it measures.
try "memory of idle daemons, and groups of them" idle

# suite runs a suite at the same time as others. What it prints is shown when it ends, so that no two are mixed.
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT
suite() {
  local name=$1 begin=$SECONDS
  shift
  say "$name ..."
  "$root/tools/suite.sh" "$@" >"$logs/$name" 2>&1 || touch "$logs/$name.failed"
  times >"$logs/$name.times"
  {
    # A second run is told of once more at the end.
    grep -A 1 '^SECOND RUN' "$logs/$name" | sed "s|^|$name: |" >"$logs/$name.twice" || true
    flock 9
    cat "$logs/$name"
    if [ -e "$logs/$name.failed" ]; then
      say "tests of $name FAILED after $((SECONDS - begin)) s"
    else
      say "tests of $name: ok, $((SECONDS - begin)) s, $(processor <"$logs/$name.times") s of a processor"
    fi
  } 9>"$logs/.lock"
}

# processor is what bash's times tells of the processes that have ended: of two lines the second.
processor() {
  awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, t, /[ms]/); s += 60 * t[1] + t[2] } printf "%.0f", s }'
}

# busy prints the time that the machine's processors have computed, and all their time, in hundredths of seconds.
busy() { awk '/^cpu / { c = $2 + $3 + $4 + $7 + $8; printf "%.0f %.0f\n", c, c + $5 + $6 }' /proc/stat; }

# Each suite is a process group of its own, so that an interrupt ends the tests below it too.
set -m
interrupted() {
  local group
  for group in $(jobs -p); do kill -INT -- "-$group" || true; done
  exit 130
}
trap interrupted INT TERM

# alongside starts a suite as soon as fewer than LANES run, unless the BUDGET is used up.
lanes=${LANES:-$(nproc)}
running=0
alongside() {
  if [ $running -ge "$lanes" ]; then
    wait -n
    running=$((running - 1))
  fi
  if [ -n "${BUDGET:-}" ] && [ "$SECONDS" -gt "$BUDGET" ]; then
    say "NOT RUN: the tests of $1; the budget of $BUDGET s is used up" | tee -a "$logs/left-out"
    return
  fi
  suite "$@" &
  running=$((running + 1))
}

test=$root/test
# Those that are run by make vm-test, by make packages-test, and by hand: the last release must be built for two of
# them. A package that needs a machine of its own, or a build, belongs here. What matrix says of its document is below.
elsewhere=(./vm ./vm/asnode ./packages ./e2e/matrix ./e2e/skew)
named=(./e2e ./e2e/crash ./e2e/gc ./e2e/parity ./e2e/shutdown ./integration/apiserver ./integration/cri)
# others are the packages with tests that no suite below names.
others() {
  local format='{{if or .TestGoFiles .XTestGoFiles}}.{{slice .ImportPath (len .Module.Path)}}{{end}}'
  GOWORK=off go -C "$test" list -f "$format" ./... | grep -vxF "$(printf '%s\n' "${elsewhere[@]}" "${named[@]}")"
}
list=$(others)
mapfile -t others <<<"$list"

# Long ones first. Long packages are two suites or three of about the same length.
stories='^TestSameStory$'
kills='^Test(KilledDaemon|Chaos)$'
flood='^TestAnnotationsUpToTheirLimit$'
# Many pods that crash and wait: few of these tests run at a time, by themselves.
why='^TestWhy'
# Most of those with beds of their own.
own='GarbageOnTheBus|NothingThereAtStart|RuntimeAnswersErrors.*|HangingRuntime|FullDisk|CompactLayout'
own="^Test($own|(Runtime)?Upgrade)\$"
read -r computed all < <(busy)
alongside e2e "$test" ./e2e -- -skip "$why"
alongside parity "$test" ./e2e/parity -- -skip "$stories"
alongside crash "$test" ./e2e/crash -- -skip "$own|$kills|$flood"
alongside crash-beds "$test" ./e2e/crash -- -run "$own"
alongside gc "$test" ./e2e/gc
alongside stories "$test" ./e2e/parity -- -run "$stories"
alongside crash-kills "$test" ./e2e/crash -- -run "$kills"
alongside crash-flood "$test" ./e2e/crash -- -run "$flood"
alongside why "$test" ./e2e -- -run "$why" -parallel 4
alongside tools "$test" "${others[@]}"
alongside integration "$test" ./integration/...
alongside shutdown "$test" ./e2e/shutdown
alongside matrix-document "$test" ./e2e/matrix -- -run '^Test(Document|AllDaemonsAreInTheTable)$'
alongside differential "$test/differential" ./...
wait
read -r computed_then all_then < <(busy)
say "the processors were busy $((100 * (computed_then - computed) / (all_then - all))) % of the suites' time"
for failed in "$logs"/*.failed; do
  [ ! -e "$failed" ] || failures+=("tests of $(basename "$failed" .failed)")
done
cat "$logs"/*.twice
twice=$(cat "$logs"/*.twice | grep -c 'SECOND RUN: .* failed at first' || true)
[ "$twice" -le "${FORGIVEN:-0}" ] || failures+=("$twice tests passed at their second run only")
[ ! -e "$logs/left-out" ] || cat "$logs/left-out"
verdict test
