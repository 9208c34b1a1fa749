#!/usr/bin/env bash
# Runs the benchmark in test/bench: bare CRI calls, the hollow agent, the kubelet and kubelot, in the same run. Without
# arguments it is the full one, whose result goes into docs/bench; QUICK=1 is the short form, which fails where a figure
# is worse than its goal, and than what it is held to where the goal is missed, by more than a margin.
. "$(dirname "$0")/lib.sh"

need_root bench
programs
args=(--out "$root/.run/bench" "$@")
if [ "${QUICK:-}" = 1 ]; then
  args=(--quick --out "$root/.run/bench-quick" "$@")
elif [ $# -eq 0 ]; then
  args=(--out "$root/docs/bench")
fi
KUBELOT_VERSION=$("$root/tools/version.sh")
export KUBELOT_VERSION
GOWORK=off go -C "$root/test" build -o "$bin/bench" ./bench/cmd/bench
exec "$bin/bench" "${args[@]}"
