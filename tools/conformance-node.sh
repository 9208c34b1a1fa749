#!/usr/bin/env bash
# Runs Kubernetes' suite of a node alone (device plugins, PodResources, CPU, memory and topology manager, DRA) and
# compares kubelot with the upstream kubelet. The results stay in .run/conformance-node; those of the agent that isn't
# run now are taken from there.
#   AGENT=kubelot|kubelet|kubelot,kubelet   QUICK=1 a part of some minutes   FOCUS=expression   REPEAT=3 in a row
#   UPDATE=1, with AGENT=kubelet: write test/conformance/node/passes.txt again, with FOCUS only what that means
#   OUT=directory for the results, so that parts can run side by side
. "$(dirname "$0")/lib.sh"

# node_suite builds the suite and the device plugin of its specs, once per version: minutes. They are packages of
# k8s.io/kubernetes itself, whose module is that of the test bed's Kubernetes programs.
node_suite() {
  local module=$root/test/testbed/programs/kubernetes stamp=$bin/.stamps/e2e_node.test
  local package=k8s.io/component-base/version wanted ldflags
  local release=v1.36.3
  ldflags="-s -w -X $package.gitVersion=$release -X $package.gitMajor=1 -X $package.gitMinor=36"
  wanted=$(cat "$module/go.mod" "$module/go.sum" <(echo "$ldflags") | sha256sum)
  if [ -x "$bin/e2e_node.test" ] && [ -x "$bin/sampledeviceplugin" ] &&
    [ "$(cat "$stamp" 2>/dev/null)" = "$wanted" ]; then
    return 0
  fi
  export CGO_ENABLED=0 GOWORK=off
  nice go -C "$module" test -vet=off -c -ldflags "$ldflags" -o "$bin/e2e_node.test" k8s.io/kubernetes/test/e2e_node &&
    nice go -C "$module" build -ldflags "-s -w" -o "$bin/sampledeviceplugin" \
      k8s.io/kubernetes/test/images/sample-device-plugin &&
    echo "$wanted" >"$stamp"
}

need_root conformance-node
args=(--suite node --out "${OUT:-$root/.run/conformance-node}" --agent "${AGENT:-kubelot}" --repeat "${REPEAT:-1}")
args+=(--focus "${FOCUS:-}")
if [ -n "${QUICK:-}" ]; then args+=(--quick); fi
if [ -n "${UPDATE:-}" ]; then args+=(--update "$root/test/conformance/node/passes.txt"); fi

# conformance is the program that runs the suite and answers its calls of systemctl.
conformance() { CGO_ENABLED=0 GOWORK=off go -C "$root/test" build -o "$bin/conformance" ./conformance/cmd/conformance; }

programs
step "programs of the suite's images" "$bin/testbed" suite --images-only
step "Kubernetes' suite of a node" node_suite
step "build conformance" conformance
# The suite's paths and ports are those of the machine (/var/lib/kubelet, 6443, 10250): it has mounts and a network of
# its own. Its API server looks for the address of the default route.
KUBELOT_MACHINES_MOUNTS=$(readlink /proc/self/ns/mnt)
export KUBELOT_MACHINES_MOUNTS
# shellcheck disable=SC2016 # $0 and $@ are the inner shell's
exec nice unshare --mount --net --propagation private bash -ec '
  ip link set lo up
  ip link add uplink type bridge
  ip address add 192.0.2.1/24 dev uplink
  ip link set uplink up
  ip route add default via 192.0.2.2
  exec "$0" "$@"' "$bin/conformance" "${args[@]}" "$@"
