#!/usr/bin/env bash
# Runs Kubernetes' suite of a node alone (device plugins, PodResources, CPU, memory and topology manager, DRA) and
# compares kubelot with the upstream kubelet. The results stay in .run/conformance-node; those of the agent that isn't
# run now are taken from there.
#   AGENT=kubelot|kubelet|kubelot,kubelet   QUICK=1 a part of some minutes   FOCUS=expression   REPEAT=3 in a row
#   UPDATE=1, with AGENT=kubelet: write test/conformance/node/passes.txt again, with FOCUS only what that means
#   OUT=directory for the results, so that parts can run side by side
#   VM=1     the specs of the CPU, memory and topology manager and of PodResources, or those of FOCUS, in a virtual
#            machine with NUMA nodes and cgroup v2; the results stay in .run/conformance-node-vm, the list is
#            test/conformance/numa/passes.txt
#            TOPOLOGY=2,2,2 are its sockets, each a NUMA node, the cores of each, and the threads of each core
. "$(dirname "$0")/lib.sh"

# node_suite builds the suite, once per version: minutes. It is a package of k8s.io/kubernetes itself, whose module is
# that of the test bed's Kubernetes programs.
node_suite() {
  local module=$root/test/testbed/programs/kubernetes stamp=$bin/.stamps/e2e_node.test
  local package=k8s.io/component-base/version wanted ldflags
  local release=v1.36.3
  ldflags="-s -w -X $package.gitVersion=$release -X $package.gitMajor=1 -X $package.gitMinor=36"
  wanted=$(cat "$module/go.mod" "$module/go.sum" <(echo "$ldflags") | sha256sum)
  if [ -x "$bin/e2e_node.test" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
    return 0
  fi
  export CGO_ENABLED=0 GOWORK=off
  nice go -C "$module" test -vet=off -c -ldflags "$ldflags" -o "$bin/e2e_node.test" k8s.io/kubernetes/test/e2e_node &&
    echo "$wanted" >"$stamp"
}

need_root conformance-node
suite=node out=$root/.run/conformance-node
if [ -n "${VM:-}" ]; then suite=numa out=$root/.run/conformance-node-vm; fi
args=(--suite "$suite" --out "${OUT:-$out}" --agent "${AGENT:-kubelot}" --repeat "${REPEAT:-1}" --focus "${FOCUS:-}")
if [ -n "${QUICK:-}" ]; then args+=(--quick); fi
if [ -n "${UPDATE:-}" ]; then args+=(--update "$root/test/conformance/$suite/passes.txt"); fi

# conformance is the program that runs the suite and answers its calls of systemctl.
conformance() { CGO_ENABLED=0 GOWORK=off go -C "$root/test" build -o "$bin/conformance" ./conformance/cmd/conformance; }

programs
step "programs of the suite's images" "$bin/testbed" suite --images-only
step "Kubernetes' suite of a node" node_suite
step "build conformance" conformance
if [ -n "${VM:-}" ]; then
  exec "$bin/conformance" "${args[@]}" --machine "$bin" --topology "${TOPOLOGY:-2,2,2}" "$@"
fi
exec nice "$root/test/conformance/run/apart.sh" "$bin/conformance" "${args[@]}" "$@"
