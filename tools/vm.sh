#!/usr/bin/env bash
# A node in a virtual machine: Debian 12 with systemd and kubelot, joined to a control plane on this host.
#   vm.sh run    leaves it running until Ctrl-C, with a shell and a kubeconfig
#   vm.sh test   runs the tests of test/vm in it, then the quick part with Debian's own container runtime, and the quick
#                conformance specs
#                QUICK=1 the quick part alone; FOCUS=expression some tests
#   INSTALL=packages|executables installs deb packages with apt, or executables by kubelot install. The latter takes an
#                emulated machine less time, so the quick part alone does that unless it is told.
#   RUNTIME=containerd|debian-containerd chooses the container runtime; VM_ACCEL=kvm|tcg decides what a probe does else
. "$(dirname "$0")/lib.sh"
mode=${1:?run or test}
log=$root/.run/vm-install.log
install=${INSTALL:-packages}
if [ "$mode" = test ] && [ -n "${QUICK:-}" ]; then install=${INSTALL:-executables}; fi
installed=$bin
next=$root/.run/vm-next

need_root vm

# what_is_installed makes what the machine installs where it isn't the executables that are built anyway, and a later
# version of the daemons, which a test upgrades; the quick part upgrades podsync alone.
what_is_installed() {
  local arch packages=$root/.run/vm-packages later=v99.0.0 upgraded=kubelot-podsync
  [ -n "${QUICK:-}" ] || upgraded=$(cd "$root/services" && printf 'kubelot-%s,' bus *)
  # A package goes with those of the release before it, which a checkout without history has no version after.
  case ${VERSION:-$("$root/tools/version.sh")} in v*) ;; *) later=v0.0.1 ;; esac
  if [ "$install" = packages ]; then
    arch=$(dpkg --print-architecture)
    rm -rf "$packages" "$next"
    # They lie in a directory for each architecture.
    export ARCH=$arch FORMAT=deb
    if ! { OUT=$packages "$root/tools/packages.sh" &&
      VERSION=$later OUT=$next "$root/tools/packages.sh" --only "${upgraded%,}"; } >"$log" 2>&1; then
      cat "$log"
      return 1
    fi
    installed=$packages/$arch next=$next/$arch
  else
    VERSION=$later "$root/tools/build.sh" ${QUICK:+--multi-call} "$next"
  fi
}

build_vm() { CGO_ENABLED=0 GOWORK=off go_build go -C "$root/test" build -v -o "$bin/vm" ./vm/cmd/vm; }

# build_tests makes the test binaries that run in the machine itself.
build_tests() {
  export VM_E2E=$root/.run/vm-e2e.test VM_LOGIND=$root/.run/vm-logind.test
  CGO_ENABLED=0 GOWORK=off go -C "$root/test" test -c -vet=off -o "$VM_E2E" ./e2e &&
    CGO_ENABLED=0 go -C "$root/services/gc" test -c -vet=off -o "$VM_LOGIND" ./internal/logind
}

# go_tests runs those of a directory that are of the focus, with more flags of go test. At least one must be there.
go_tests() {
  local dir=$1 said=$root/.run/vm-test.out
  shift
  GOWORK=off go -C "$root/test" test -count=1 -vet=off -v -timeout 3h -run "${FOCUS:-.}" "$@" "./$dir" | tee "$said" &&
    ran "$said" "${FOCUS:-}"
}

# tests runs those of a runtime, with more flags of go test.
tests() {
  local runtime=$1
  shift
  VM_INSTALL=$installed VM_NEXT=$next VM_DIR=$root/.run/vm-test VM_RUNTIME=$runtime go_tests vm "$@"
}

# has reports whether a directory has tests of the focus; each has a machine of its own, which takes its time.
has() { has_test "$root/test/$1" "${FOCUS:-.}"; }

# kubeadm_tests runs those of a node of kubeadm, with kubelot's packages and Debian's container runtime.
kubeadm_tests() {
  local packages=$root/.run/vm-kubeadm arch
  arch=$(dpkg --print-architecture)
  if [ "$install" = packages ]; then
    packages=$root/.run/vm-packages
  else
    rm -rf "$packages"
    OUT=$packages ARCH=$arch FORMAT=deb "$root/tools/packages.sh" >"$log" 2>&1 || { cat "$log"; return 1; }
  fi
  VM_PACKAGES=$packages/$arch VM_DIR=$root/.run/vm-test go_tests vm/asnode
}

if [ "$mode" = test ] && ! has vm && { [ -n "${QUICK:-}" ] || ! has vm/asnode; }; then
  say "vm.sh: no test matches FOCUS=$FOCUS"
  exit 2
fi
mkdir -p "$root/.run"
programs
step "prepare what the machine installs" what_is_installed
case $mode in
run)
  step "build the machine's program" build_vm
  exec "$bin/vm" --dir "$root/.run/vm" --install "$installed" --runtime "${RUNTIME:-containerd}"
  ;;
test)
  if [ -n "${QUICK:-}" ]; then
    step "the quick tests in the machine" tests "${RUNTIME:-containerd}" -short
    exit
  fi
  if has vm; then
    step "build the tests that run in the machine" build_tests
    try "tests in the machine (${RUNTIME:-containerd})" tests "${RUNTIME:-containerd}"
  fi
  if has vm/asnode; then try "tests of a node of kubeadm" kubeadm_tests; fi
  if [ -z "${RUNTIME:-}" ] && [ -z "${FOCUS:-}" ]; then
    try "quick tests in the machine (debian-containerd)" tests debian-containerd -short
    try "quick conformance specs in the machine" env QUICK=1 VM=1 "$root/tools/conformance.sh"
  fi
  verdict vm-test
  ;;
*)
  say "vm.sh: $mode: want run or test"
  exit 2
  ;;
esac
