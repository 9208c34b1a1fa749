#!/usr/bin/env bash
# Tests how tests are chosen, and suite.sh on suites made for it: of one test that always passes, one that passes at its
# second run, one that never does, one whose TestMain fails.
. "$(dirname "$0")/lib.sh"

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/sub"
cat >"$dir/go.mod" <<'TEXT'
module example.com/fake

go 1.26.0
TEXT
cat >"$dir/sub/fake_test.go" <<'TEXT'
package sub

import (
	"os"
	"testing"
)

func TestSteady(*testing.T) {}

func TestSecond(t *testing.T) {
	t.Run("v1.2/part", func(t *testing.T) {
		if os.Mkdir(os.Getenv("FAKE_STATE"), 0o755) == nil {
			t.Error("the first run fails")
		}
	})
}

func TestNever(t *testing.T) {
	t.Error("always")
}

var left bool

func TestLeaves(t *testing.T) {
	left = os.Mkdir(os.Getenv("FAKE_STATE"), 0o755) == nil
}

func TestMain(m *testing.M) {
	code := m.Run()
	if left {
		code = 1
	}
	os.Exit(code)
}
TEXT

# expect runs the tests that match an expression with a list of known flakes, and compares the end and what is said.
expect() {
  local what=$1 run=$2 flakes=$3 want=$4 text=$5 out code=0
  printf '# a comment\n%s\n' "$flakes" >"$dir/flakes.txt"
  rm -rf "$dir/state"
  out=$(FAKE_STATE=$dir/state FLAKES=$dir/flakes.txt "$root/tools/suite.sh" "$dir" ./sub -- -run "$run" 2>&1) || code=$?
  if [ "$((code != 0))" -ne "$want" ]; then
    echo "$what: ended with $code, want failure $want; it printed:"
    echo "$out"
    return 1
  fi
  if [ -n "$text" ] && ! grep -qF -- "$text" <<<"$out"; then
    echo "$what: it doesn't say \"$text\"; it printed:"
    echo "$out"
    return 1
  fi
  if [ -z "$text" ] && grep "SECOND RUN" <<<"$out"; then
    echo "$what: it tells of a second run"
    return 1
  fi
}

flake=example.com/fake/sub.TestSecond
expect "what passes at once" Steady "" 0 ""
expect "what passes at its second run" 'Steady|Second' "" 1 "SECOND RUN: $flake"
expect "how to run it alone" Second "" 1 "test ./sub -count=1 -v -run '^TestSecond\$'"
expect "its own words at the end" Second "" 1 "WHAT FAILED, and where:"
FORGIVEN=1 expect "what may pass at its second run" Second "" 0 "SECOND RUN: $flake"
FORGIVEN=1 expect "what never passes" 'Second|Never' "" 1 "SECOND RUN: $flake"
expect "a known flake" Second "$flake issue 7: the disk is slow" 0 "known: issue 7: the disk is slow"
expect "a known flake without an issue" Second "$flake" 1 "SECOND RUN: $flake"
expect "another test's entry" Second "${flake}s issue 7" 1 "SECOND RUN: $flake"
expect "a known flake that never passes" Never "example.com/fake/sub.TestNever issue 8" 1 ""
expect "what fails after its tests" Leaves "" 1 "FAILED OUTSIDE ITS TESTS: sub"

# focus has an expression choose tests or none.
focus() {
  local expression=$1 want=$2 got=0
  has_test "$dir/sub" "$expression" || got=1
  if [ $got -ne "$want" ]; then
    echo "has_test for \"$expression\" ends with $got, want $want"
    return 1
  fi
}
focus . 0
focus TestSecond 0
focus 'TestSecond/v1.2/part' 0
focus 'TestMissing|TestSecond/(a|b)' 0
focus 'Test(Missing|Second)/(a|b)' 0
focus TestTypo 1
focus TestTypo/Second 1
focus 'TestTypo/(Never|Second)' 1

# goes looks in what go test says for a test as deep as the expression.
goes() {
  local expression=$1 want=$2 got=0
  ran "$dir/said" "$expression" >/dev/null || got=1
  if [ $got -ne "$want" ]; then
    echo "ran for \"$expression\" ends with $got, want $want"
    return 1
  fi
}
printf '=== RUN   TestNode\n--- PASS: TestNode (0.00s)\nok\n' >"$dir/said"
goes "" 0
goes TestNode 0
goes TestNode/Typo 1
printf '=== RUN   TestNode\n=== RUN   TestNode/Reboot\nok\n' >"$dir/said"
goes TestNode/Reboot 0
goes 'TestNode/(Reboot|Other)' 0
goes TestNode/Reboot/Typo 1
printf 'testing: warning: no tests to run\nok\n' >"$dir/said"
goes "" 1
echo "ok"
