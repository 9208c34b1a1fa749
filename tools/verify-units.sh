#!/usr/bin/env bash
# Lets systemd read the units as it would at boot. The executables need not be installed for it.
. "$(dirname "$0")/lib.sh"

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for unit in "$root"/deploy/systemd/*.{service,target,slice}; do
  sed 's|^ExecStart=[^ ]*|ExecStart=/bin/true|' "$unit" >"$dir/$(basename "$unit")"
done
# systemd says what it doesn't understand on standard error, and ends with 0 for much of it.
out=$(SYSTEMD_UNIT_PATH=$dir: systemd-analyze verify --man=no --recursive-errors=no "$dir"/* 2>&1) || true
if [ -n "$out" ]; then
  echo "$out"
  exit 1
fi
compact=$root/deploy/systemd/kubelot-compact.service
for daemon in "$root"/{services/*,bus/embed}/cmd/*; do
  name=${daemon##*/}
  [ -f "$root/deploy/systemd/$name.service" ] || { echo "$name has no unit"; exit 1; }
  grep -q "^ExecStart=.* run \\([a-z]*,\\)*${name#kubelot-}[, ]" "$compact" || { echo "kubelot-compact.service doesn't run $name"; exit 1; }
  grep -q "^Conflicts=.* $name.service\b" "$compact" || { echo "kubelot-compact.service doesn't conflict with $name.service"; exit 1; }
done
# A mount namespace of its own would hide the volumes from the runtime.
if grep -nE '^(Protect(System|Home|KernelTunables|ControlGroups|KernelLogs|Hostname|Proc)|Private(Tmp|Devices|Mounts)|ReadWritePaths|ReadOnlyPaths|InaccessiblePaths|MountFlags|RootDirectory)=' "$root"/deploy/systemd/kubelot-{volume,podsync,compact}.service; then
  echo "this gives the daemon a mount namespace of its own: its mounts would not reach the runtime"
  exit 1
fi
