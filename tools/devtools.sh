#!/usr/bin/env bash
# Builds the pinned developer tools of tools/go.mod into .bin, once per version.
. "$(dirname "$0")/lib.sh"

stamp=$(cat "$root/tools/go.mod" "$root/tools/go.sum" | sha256sum | cut -d' ' -f1)
if [ "$(cat "$bin/.devtools" 2>/dev/null)" = "$stamp" ]; then exit 0; fi
mkdir -p "$bin"
echo "building golangci-lint, gofumpt and govulncheck (some minutes the first time)"
GOWORK=off CGO_ENABLED=0 go_build nice go -C "$root/tools" build -v -ldflags '-s -w' -o "$bin/" \
  github.com/golangci/golangci-lint/v2/cmd/golangci-lint mvdan.cc/gofumpt golang.org/x/vuln/cmd/govulncheck
echo "$stamp" >"$bin/.devtools"
