#!/usr/bin/env bash
# Runs the part of Kubernetes' end-to-end suite that judges a CSI driver, with the driver of test/csidriver and the real
# external-provisioner, external-attacher and external-resizer, and compares kubelot with the upstream kubelet. The
# results stay in .run/conformance-storage; those of the agent that isn't run now are taken from there.
#   AGENT=kubelot|kubelet|kubelot,kubelet   QUICK=1 a part of some minutes   FOCUS=expression   REPEAT=3 in a row
#   UPDATE=1, with AGENT=kubelet: write test/conformance/storage/passes.txt again
. "$(dirname "$0")/lib.sh"

need_root conformance-storage
args=(--suite storage --out "$root/.run/conformance-storage" --agent "${AGENT:-kubelot}" --repeat "${REPEAT:-1}")
args+=(--focus "${FOCUS:-}")
if [ -n "${QUICK:-}" ]; then args+=(--quick); fi
if [ -n "${UPDATE:-}" ]; then args+=(--update "$root/test/conformance/storage/passes.txt"); fi

programs
step "Kubernetes' end-to-end suite" "$bin/testbed" suite
cd "$root/test"
GOWORK=off exec go run ./conformance/cmd/conformance "${args[@]}" "$@"
