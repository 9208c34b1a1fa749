#!/usr/bin/env bash
# Builds the multi-call executable with its links, the daemons that have one of their own, and the executable that runs all
# daemons in one process, into .bin or into the directory given.
. "$(dirname "$0")/lib.sh"
out=${1:-$bin}

version=$(git -C "$root" describe --tags --always --dirty 2>/dev/null || echo devel)
mkdir -p "$out"
out=$(cd "$out" && pwd)
# executable builds the program of a module.
executable() {
  CGO_ENABLED=0 go -C "$root/$1" build -trimpath -ldflags "-s -w -X kubelot.dev/daemon.version=$version" -o "$out/$2" "./cmd/$2"
}
executable crew kubelot-all
executable services/api kubelot-api
executable crew kubelot-compact
for name in $("$out/kubelot-all" 2>&1 | sed 's/.*name a program: //; s/,//g'); do
  case $name in kubelot) link=kubelot ;; *) link=kubelot-$name ;; esac
  ln -sfn kubelot-all "$out/$link"
done
