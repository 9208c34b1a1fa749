#!/usr/bin/env bash
# Installs kubelot with its systemd units.
#   PREFIX=/usr DESTDIR= tools/install.sh [daemon...]
# Each version has a directory of its own; <prefix>/lib/kubelot/bin has one link per daemon, which its unit runs.
# With names of daemons only their links move: restart their units, and the others go on with their version.
. "$(dirname "$0")/lib.sh"
prefix=${PREFIX:-/usr}
dest=${DESTDIR:-}

staging=$(mktemp -d)
trap 'rm -rf "$staging"' EXIT
step "build" "$root/tools/build.sh" "$staging"
version=$("$staging/kubelot" version | cut -d' ' -f2)

lib=$dest$prefix/lib/kubelot
say "installing version $version into $lib/$version"
mkdir -p "$lib/bin" "$dest$prefix/bin"
# A running version must not be written into: it is replaced as a whole.
rm -rf "$lib/.new"
cp -a "$staging" "$lib/.new"
chmod 0755 "$lib/.new"
rm -rf "${lib:?}/$version"
mv "$lib/.new" "$lib/$version"

# link moves one link at once, so that there is no moment without it.
link() {
  ln -sfn "$1" "$2.new"
  mv -T "$2.new" "$2"
}
names=("$@")
if [ ${#names[@]} -eq 0 ]; then
  for path in "$lib/$version"/kubelot-*; do
    name=${path##*/kubelot-}
    # The others are executables that several daemons share.
    if [ -e "$root/deploy/systemd/kubelot-$name.service" ]; then names+=("$name"); fi
  done
  link "../lib/kubelot/$version/kubelot" "$dest$prefix/bin/kubelot"
fi
for name in "${names[@]}"; do
  [ -e "$lib/$version/kubelot-$name" ] || { say "there is no daemon $name"; exit 1; }
  link "../$version/kubelot-$name" "$lib/bin/kubelot-$name"
done

units=$dest$prefix/lib/systemd/system
mkdir -p "$units" "$dest$prefix/lib/tmpfiles.d" "$dest/etc/default"
for unit in "$root"/deploy/systemd/*.{service,target,slice}; do
  sed "s|/usr/lib/kubelot/|$prefix/lib/kubelot/|" "$unit" >"$units/$(basename "$unit")"
done
cp "$root/deploy/systemd/kubelot.tmpfiles" "$dest$prefix/lib/tmpfiles.d/kubelot.conf"
# What the administrator changed stays.
[ -e "$dest/etc/default/kubelot" ] || cp "$root/deploy/systemd/kubelot.default" "$dest/etc/default/kubelot"

if [ -z "$dest" ] && [ -d /run/systemd/system ]; then
  systemd-tmpfiles --create "$prefix/lib/tmpfiles.d/kubelot.conf"
  systemctl daemon-reload
fi
cat <<TEXT
Installed. Next:
  flags and configuration file:  $dest/etc/default/kubelot
  start, now and at boot:        systemctl enable --now kubelot.target
  or all in one process:         systemctl enable --now kubelot-compact.service
  after an upgrade:              systemctl restart kubelot-${names[0]}   (any daemon, any time: pods go on)
  versions that are there:       $(ls -m --ignore=bin "$lib")
TEXT
