#!/usr/bin/env bash
# Measures how CPU time, memory and bytes on the bus depend on the number of pods, on the container runtime that starts
# no processes: PODS=125,250,500,1000 says how many, PROFILES=directory takes CPU profiles of the largest number too.
. "$(dirname "$0")/lib.sh"

need_root scale
programs
args=(--json "${JSON:-$root/.run/scale.json}")
if [ -n "${PODS:-}" ]; then args+=(--pods "$PODS"); fi
if [ -n "${PROFILES:-}" ]; then args+=(--profiles "$(realpath -m "$PROFILES")"); fi
mkdir -p "$root/.run"
cd "$root/test"
GOWORK=off exec go run ./bench/cmd/scale "${args[@]}" "$@"
