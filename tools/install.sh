#!/usr/bin/env bash
# Builds kubelot and installs it with its systemd units, by kubelot install (see its --help).
#   PREFIX=/usr DESTDIR= tools/install.sh [flags] [daemon...]
. "$(dirname "$0")/lib.sh"

staging=$(mktemp -d)
trap 'rm -rf "$staging"' EXIT
step "build" "$root/tools/build.sh" "$staging"
"$staging/kubelot" install --prefix "${PREFIX:-/usr}" --destdir "${DESTDIR:-}" "$@"
