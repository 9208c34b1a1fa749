#!/usr/bin/env bash
# Runs daemons of the last release (deploy/releases.txt), which it builds, together with those of this checkout.
#   FOCUS=expression   some tests
. "$(dirname "$0")/lib.sh"

need_root skew
if ! has_test "$root/test/e2e/skew" "${FOCUS:-.}"; then
  say "skew.sh: no test matches FOCUS=$FOCUS"
  exit 2
fi
said=$root/.run/skew.out
tests() {
  GOWORK=off go -C "$root/test" test -count=1 -vet=off -v -timeout 1h -run "${FOCUS:-.}" ./e2e/skew 2>&1 |
    tee "$said" && ran "$said" "${FOCUS:-}" || return
  # go test takes a test that is skipped for a success. Who asks for this one wants to know.
  if grep -q '^SKIPPED: ' "$said"; then
    echo "the last release isn't in this checkout: git fetch --unshallow"
    return 1
  fi
}
mkdir -p "$root/.run"
programs
step "daemons of two releases side by side" tests
