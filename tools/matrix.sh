#!/usr/bin/env bash
# Kills, freezes, restarts and removes each part of a node, and replaces it by the last release's (test/e2e/matrix).
#   FOCUS=TestMatrix/pleg   some cells, as go test -run has them
#   FULL=1     a freeze of 60 s, an absence of 5 minutes and 30 pods: some hours, of which one and a half are pauses
#   UPDATE=1   write what the cells showed into docs/matrix.md. The results of a run are in .run/matrix.json.
. "$(dirname "$0")/lib.sh"

need_root matrix
focus=${FOCUS:-TestMatrix}
if ! has_test "$root/test/e2e/matrix" "$focus"; then
  say "matrix.sh: no test matches FOCUS=$focus"
  exit 2
fi
results=$root/.run/matrix.json
said=$root/.run/matrix.out
go_test() { GOWORK=off go -C "$root/test" test -count=1 -vet=off -v -timeout 8h "$@" ./e2e/matrix; }
cells() { RESULTS=$results MATRIX=${FULL:+full} go_test -run "$focus" 2>&1 | tee "$said" && ran "$said" "$focus"; }
document() { go_test -run '^TestDocument$' -args -results "$results"; }
mkdir -p "$root/.run"
rm -f "$results"
programs
try "what may happen to each part of a node" cells
# Cells that failed have no result, and stay as they are.
if [ -n "${UPDATE:-}" ] && [ -e "$results" ]; then try "write docs/matrix.md" document; fi
verdict matrix
