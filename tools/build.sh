#!/usr/bin/env bash
# Builds the multi-call executable and its links into .bin, or into the directory given.
. "$(dirname "$0")/lib.sh"
out=${1:-$bin}

version=$(git -C "$root" describe --tags --always --dirty 2>/dev/null || echo devel)
mkdir -p "$out"
CGO_ENABLED=0 go -C "$root/crew" build -trimpath -ldflags "-s -w -X kubelot.dev/daemon.version=$version" -o "$out/kubelot-all" ./cmd/kubelot-all
for name in $("$out/kubelot-all" 2>&1 | sed 's/.*name a program: //; s/,//g'); do
  case $name in kubelot) link=kubelot ;; *) link=kubelot-$name ;; esac
  ln -sfn kubelot-all "$out/$link"
done
