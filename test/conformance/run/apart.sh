#!/bin/sh
# Runs a command with mounts and a network of its own, for the suites of a node alone: their paths and ports are those
# of the machine (/var/lib/kubelet, 6443, 10250). Their API server looks for the address of the default route.
KUBELOT_MACHINES_MOUNTS=$(readlink /proc/self/ns/mnt)
export KUBELOT_MACHINES_MOUNTS
# shellcheck disable=SC2016 # $0 and $@ are the inner shell's
exec unshare --mount --net --propagation private sh -ec '
  ip link set lo up
  ip link add uplink type bridge
  ip address add 192.0.2.1/24 dev uplink
  ip link set uplink up
  ip route add default via 192.0.2.2
  exec "$0" "$@"' "$@"
