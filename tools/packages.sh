#!/usr/bin/env bash
# Builds kubelot's packages, deb and rpm, into a directory for each architecture below .run/packages or what OUT names.
# What lies in one directory is installed together: apt install ./*.deb. The same commit gives the same bytes. Files
# carry the time of the newest commit, or SOURCE_DATE_EPOCH.
#   ARCH=amd64 FORMAT=deb   only these
#   packages.sh --release   also archives for kubelot install, bills of materials (CycloneDX), and sums
. "$(dirname "$0")/lib.sh"

time=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || date +%s)}
mkdir -p "$bin"
GOWORK=off go_build go -C "$root/tools/packages" build -v -o "$bin/packages" .
"$bin/packages" --root "$root" --out "${OUT:-$root/.run/packages}" --version "${VERSION:-$("$root/tools/version.sh")}" \
  --time "$time" --arch "${ARCH:-amd64,arm64}" --format "${FORMAT:-deb,rpm}" "$@"
(cd "${OUT:-$root/.run/packages}" && find . -type f -printf "%10s %P\n" | sort -k 2)
