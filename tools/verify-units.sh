#!/usr/bin/env bash
# Lets systemd read the units as it would at boot. The executables need not be installed for it.
. "$(dirname "$0")/lib.sh"

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
for unit in "$root"/deploy/systemd/*.{service,target,slice} "$root/deploy/systemd/kubelet/kubelet.service"; do
  sed 's|^ExecStart=[^ ]*|ExecStart=/bin/true|' "$unit" >"$dir/$(basename "$unit")"
done
# The drop-ins of kubelot-kubelet, which change the daemons' units.
mkdir "$dir/kubelot-.service.d" "$dir/kubelot.target.d"
cp "$root/deploy/systemd/kubelet/handed-over.conf" "$dir/kubelot-.service.d/"
cp "$root/deploy/systemd/kubelet/crew-stops.conf" "$dir/kubelot.target.d/"
# systemd says what it doesn't understand on standard error, and ends with 0 for much of it.
out=$(SYSTEMD_UNIT_PATH=$dir: systemd-analyze verify --man=no --recursive-errors=no \
  "$dir"/*.{service,target,slice} 2>&1) || true
if [ -n "$out" ]; then
  echo "$out"
  exit 1
fi
compact=$root/deploy/systemd/kubelot-compact.service
for daemon in "$root"/{services/*,bus/embed}/cmd/*; do
  name=${daemon##*/}
  [ -f "$root/deploy/systemd/$name.service" ] || { echo "$name has no unit"; exit 1; }
  if ! grep -q "^ExecStart=.* run \\([a-z]*,\\)*${name#kubelot-}[, ]" "$compact"; then
    echo "kubelot-compact.service doesn't run $name"
    exit 1
  fi
  if ! grep -qE "^Conflicts=(.* )?$name.service\b" "$compact"; then
    echo "kubelot-compact.service doesn't conflict with $name.service"
    exit 1
  fi
done
# All daemons run in it.
for capability in $(sed -n 's/^CapabilityBoundingSet=//p' "$root"/deploy/systemd/*.service); do
  if ! grep -qE "^CapabilityBoundingSet=(.* )?$capability( |\$)" "$compact"; then
    echo "kubelot-compact.service lacks $capability, which the unit of one of its daemons has"
    exit 1
  fi
done
# A mount namespace of its own would hide the volumes from the runtime.
own='Protect(System|Home|KernelTunables|KernelModules|ControlGroups|KernelLogs|Hostname|Proc)'
own+='|Private(Tmp|Devices|Mounts|IPC)|(ReadWrite|ReadOnly|Inaccessible|NoExec|Exec|Bind|BindReadOnly)Paths'
own+='|TemporaryFileSystem|MountFlags|ProcSubset|Root(Directory|Image)'
if grep -nE "^($own)=" "$root"/deploy/systemd/kubelot-{volume,podsync,compact}.service; then
  echo "this gives the daemon a mount namespace of its own: its mounts would not reach the runtime"
  exit 1
fi
# They open files by openat2, which systemd can't look into, so that this option takes it away as a whole.
if grep -n '^RestrictSUIDSGID=' "$root"/deploy/systemd/kubelot-{gc,podsync,volume,compact}.service; then
  echo "this takes openat2 away: directories can't be removed"
  exit 1
fi
# kubeadm's configuration names /etc/kubernetes/pki/ca.crt as clientCAFile.
if grep -nE '^InaccessiblePaths=(.* )?-?/etc/kubernetes(/pki(/ca\.crt)?)?( |$)' "$root"/deploy/systemd/*.service; then
  echo "this hides the certificate by which kubelot-api knows its clients on a node of kubeadm"
  exit 1
fi
# What may write to the whole root directory of the kubelet must not reach what is others' there.
for unit in "$root"/deploy/systemd/kubelot-*.service; do
  if grep -q '^ProtectSystem=strict' "$unit" && ! grep -q '^UMask=00[27]7' "$unit"; then
    echo "${unit##*/} writes files that anybody may read: it has no UMask="
    exit 1
  fi
  grep -qE '^ReadWritePaths=(.* )?-?/var/lib/kubelet( |$)' "$unit" || continue
  for others in pods pki checkpoints plugins plugins_registry; do
    if ! grep -qE "^(ReadOnly|Inaccessible)Paths=(.* )?-?/var/lib/kubelet/$others( |\$)" "$unit"; then
      echo "${unit##*/} lets its daemon write to /var/lib/kubelet/$others, which belongs to others"
      exit 1
    fi
  done
done
# Who may connect to the runtime's socket can do what root can. Units that need the runtime start after it. volume needs
# no answer of it, but can't have a mount namespace of its own.
for unit in "$root"/deploy/systemd/kubelot-*.service; do
  if grep -q '^After=.*containerd\.service' "$unit" || ! grep -q '^WatchdogSec=' "$unit"; then continue; fi
  for path in /run/containerd /run/crio /run/docker.sock /run/cri-dockerd.sock; do
    if ! grep -qE "^InaccessiblePaths=(.* )?-$path( |\$)" "$unit"; then
      echo "${unit##*/} lets its daemon connect to a container runtime: InaccessiblePaths=-$path"
      exit 1
    fi
  done
done
# Whose daemon may read any file must not see what kubeadm keeps of the control plane.
for unit in $(grep -lE '^AmbientCapabilities=.*CAP_DAC_' "$root"/deploy/systemd/*.service); do
  for path in /etc/kubernetes/{admin.conf,tmp,pki/ca.key,pki/etcd} /var/lib/etcd; do
    if ! grep -qE "^InaccessiblePaths=(.* )?-$path( |\$)" "$unit"; then
      echo "${unit##*/} lets its daemon see $path, which has secrets of the control plane"
      exit 1
    fi
  done
done
# How much a daemon that was taken over could do, as systemd scores it.
goals=$root/deploy/exposure.txt
# What docs/security.md says of the scores, which are those of systemd 252.
documented=$(awk -F' *[|] *' '/^[|] [|] bus /{split($0, name, / *[|] */)}
  /^[|] score /{for (i = 3; i < NF; i++) print name[i], $i}' "$root/docs/security.md")
version=$(systemd-analyze --version | sed -n '1s/^systemd \([0-9]*\).*/\1/p')
for unit in "$root"/deploy/systemd/kubelot-*.service; do
  name=$(basename "${unit#*/systemd/kubelot-}" .service)
  # They run nothing until the system stops.
  case $name in containers | shutdown) continue ;; esac
  goal=$(sed -n "s/^$name //p" "$goals")
  [ -n "$goal" ] || { echo "kubelot-$name.service has no goal for its score in deploy/exposure.txt"; exit 1; }
  # In a directory without the other units: systemd looks for these beside it, and complains of what isn't installed.
  report=$(cd "$dir" && systemd-analyze security --offline=true "./kubelot-$name.service" 2>&1) || true
  score=$(sed -n 's/.*Overall exposure level for [^ ]*: \([0-9.]*\) .*/\1/p' <<<"$report")
  [ -n "$score" ] || { echo "$report"; echo "systemd-analyze gives kubelot-$name.service no score"; exit 1; }
  if awk "BEGIN { exit $score <= $goal }"; then
    echo "kubelot-$name.service scores $score, the goal is $goal:"
    grep '✗' <<<"$report"
    exit 1
  fi
  if [ "$version" = 252 ] && ! grep -qxF "$name $score" <<<"$documented"; then
    echo "kubelot-$name.service scores $score, and docs/security.md says otherwise (The units)"
    exit 1
  fi
  printf '%-8s %s (goal %s)\n' "$name" "$score" "$goal"
done
# A daemon that drops root needs its user, the group for the bus, and its files in the directory of the sockets.
lacks() {
  echo "deploy/systemd/$1 has no line for $2"
  exit 1
}
for user in $(sed -n 's/^\(User\|Group\)=//p' "$root"/deploy/systemd/*.service | sort -u); do
  grep -q "^u $user " "$root/deploy/systemd/kubelot.sysusers" || lacks kubelot.sysusers "the user $user"
  grep -q "^m $user *kubelot$" "$root/deploy/systemd/kubelot.sysusers" || lacks kubelot.sysusers "$user in kubelot"
  grep -q "/${user#kubelot-}\.\* *- $user " "$root/deploy/systemd/kubelot.tmpfiles" ||
    lacks kubelot.tmpfiles "the socket and the counts of $user"
done
# What isn't there when a unit starts isn't protected.
for path in $(sed -n 's/^ReadOnlyPaths=//p' "$root/deploy/systemd/kubelot-lease.service" | tr ' ' '\n' |
  sed -n 's|^-/etc/|/etc/|p') /etc/kubernetes/tmp /run/containerd /run/crio; do
  grep -q "^d $path " "$root/deploy/systemd/kubelot.tmpfiles" || lacks kubelot.tmpfiles "$path"
done
# systemd-tmpfiles and systemd-sysusers read their files, for a root directory of their own.
mkdir -p "$dir/root/etc"
if ! systemd-sysusers --root="$dir/root" "$root/deploy/systemd/kubelot.sysusers" 2>"$dir/said"; then
  cat "$dir/said"
  exit 1
fi
systemd-tmpfiles --root="$dir/root" --create "$root/deploy/systemd/kubelot.tmpfiles"
