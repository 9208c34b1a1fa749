#!/usr/bin/env bash
# Has pods come and go on a node, and fails on what grows with each of them, or on what can't be seen to: FOR=10m says
# how long, or PODS=2000,20000 how many; RUNTIME=scripted takes the container runtime that starts no processes.
. "$(dirname "$0")/lib.sh"

need_root soak
programs
args=(--runtime "${RUNTIME:-containerd}" --json "${JSON:-$root/.run/soak.json}")
if [ -n "${PODS:-}" ]; then args+=(--pods "$PODS"); else args+=(--for "${FOR:-10m}"); fi
mkdir -p "$root/.run"
cd "$root/test"
GOWORK=off exec go run ./bench/cmd/soak "${args[@]}" "$@"
