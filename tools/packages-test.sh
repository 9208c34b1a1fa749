#!/usr/bin/env bash
# Builds the packages for this machine's architecture, the same again from a copy of the source, a later version of two
# of them, and one that is too late for the others, and executables of two versions for kubelot install, and tests them
# on Debian systems of their own (test/packages). It also builds a release for the other architecture.
. "$(dirname "$0")/lib.sh"

need_root packages-test
dir=$root/.run/packages-test
arch=$(go env GOARCH)
dependencies() { need mmdebstrap=mmdebstrap systemd-nspawn=systemd-container rpm=rpm; }
# The version must be the same in both, whatever the copy's git says.
build() { SOURCE_DATE_EPOCH=1700000000 ARCH=$arch "$@"; }
again() {
  local copy
  copy=$(mktemp -d)
  git -C "$root" ls-files -z --cached --others --exclude-standard | (cd "$root" && xargs -0 cp --parents -t "$copy")
  VERSION=v0.0.1 OUT=$dir/again build "$copy/tools/packages.sh"
  rm -rf "$copy"
}
next() { VERSION=v0.0.2 OUT=$dir/next build "$root/tools/packages.sh" --only kubelot-lease,kubelot; }
# There is a release between v0.0.1 and this.
far() { VERSION=v99.0.0 OUT=$dir/far build "$root/tools/packages.sh" --only kubelot-lease; }
other() {
  local arch=arm64
  [ "$(go env GOARCH)" != arm64 ] || arch=amd64
  SOURCE_DATE_EPOCH=1700000000 ARCH=$arch VERSION=v0.0.1 OUT=$dir/release "$root/tools/packages.sh" --release
}
first() { VERSION=v0.0.1 OUT=$dir/one build "$root/tools/packages.sh"; }
executables() {
  VERSION=v0.0.1 "$root/tools/build.sh" "$dir/executables/one" &&
    VERSION=v0.0.2 "$root/tools/build.sh" "$dir/executables/two"
}
step "what the tests need" dependencies
step "build the packages" first
step "build them again" again
step "build a later version of two" next
step "build one of a version that is too late" far
step "build executables of two versions" executables
step "build a release for another architecture" other
cd "$root/test"
KUBELOT_PACKAGES=$dir/one KUBELOT_PACKAGES_AGAIN=$dir/again KUBELOT_PACKAGES_NEXT=$dir/next \
  KUBELOT_PACKAGES_FAR=$dir/far KUBELOT_RELEASE=$dir/release \
  KUBELOT_EXECUTABLES=$dir/executables/one KUBELOT_EXECUTABLES_NEXT=$dir/executables/two GOWORK=off \
  go test -count=1 -timeout 30m ./packages "$@"
