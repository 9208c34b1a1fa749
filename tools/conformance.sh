#!/usr/bin/env bash
# Runs Kubernetes' conformance specs of a node and compares kubelot with the upstream kubelet. The results stay in
# .run/conformance; those of the agent that isn't run now are taken from there.
#   AGENT=kubelot|kubelet|kubelot,kubelet   QUICK=1 a part of some minutes   FOCUS=expression   REPEAT=3 in a row
#   UPDATE=1, with AGENT=kubelet: write test/conformance/passes.txt again
#   VM=1     on a node in a virtual machine, with systemd and cgroup v2; RUNTIME=debian-containerd chooses its runtime
. "$(dirname "$0")/lib.sh"

need_root conformance
args=(--out "$root/.run/conformance" --agent "${AGENT:-kubelot}" --repeat "${REPEAT:-1}" --focus "${FOCUS:-}")
if [ -n "${QUICK:-}" ]; then args+=(--quick); fi
if [ -n "${UPDATE:-}" ]; then args+=(--update "$root/test/conformance/passes.txt"); fi
if [ -n "${VM:-}" ]; then
  # An emulated machine has a tenth of this one's speed, and the suite has limits of its own. Most specs wait.
  args+=(--out "$root/.run/conformance-vm" --machine "$bin" --runtime "${RUNTIME:-containerd}" --procs 4)
fi

programs
step "Kubernetes' end-to-end suite" "$bin/testbed" suite
cd "$root/test"
GOWORK=off exec go run ./conformance/cmd/conformance "${args[@]}" "$@"
