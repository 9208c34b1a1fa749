#!/usr/bin/env bash
# Runs Kubernetes' conformance specs of a node and compares kubelot with the upstream kubelet. The results stay in
# .run/conformance; those of the agent that isn't run now are taken from there.
#   AGENT=kubelot|kubelet|kubelot,kubelet   QUICK=1 a part of some minutes   FOCUS=expression   REPEAT=3 in a row
#   UPDATE=1, with AGENT=kubelet: write test/conformance/passes.txt again
. "$(dirname "$0")/lib.sh"

need_root conformance
args=(--out "$root/.run/conformance" --agent "${AGENT:-kubelot}" --repeat "${REPEAT:-1}" --focus "${FOCUS:-}")
if [ -n "${QUICK:-}" ]; then args+=(--quick); fi
if [ -n "${UPDATE:-}" ]; then args+=(--update "$root/test/conformance/passes.txt"); fi

programs
step "Kubernetes' end-to-end suite" "$bin/testbed" suite
cd "$root/test"
GOWORK=off exec go run ./conformance/cmd/conformance "${args[@]}" "$@"
