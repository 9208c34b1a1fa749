#!/usr/bin/env bash
# Builds the multi-call executable with its links, the small programs that daemons sleep in and that runs the crew, the
# daemons that have one of their own, and the executable that runs all daemons in one process, into .bin or into the
# directory given. VERSION is what they say of themselves, else git's.
#   build.sh --multi-call [directory]   without those of their own: all daemons but api, which make run does without
. "$(dirname "$0")/lib.sh"
all=true
if [ "${1:-}" = --multi-call ]; then
  all=false
  shift
fi
out=${1:-$bin}

version=${VERSION:-$("$root/tools/version.sh")}
mkdir -p "$out"
out=$(cd "$out" && pwd)
# executable builds the program of a module.
executable() {
  CGO_ENABLED=0 go_build go -C "$root/$1" build -v -trimpath \
    -ldflags "-s -w -X kubelot.dev/daemon.version=$version" -o "$out/$2" "./cmd/$2"
}
executable crew kubelot-all
executable daemon kubelot-doze
executable cli kubelot-up
if $all; then
  executable services/api kubelot-api
  executable crew kubelot-compact
fi
for name in $("$out/kubelot-all" 2>&1 | sed 's/.*name a program: //; s/,//g'); do
  case $name in kubelot) link=kubelot ;; *) link=kubelot-$name ;; esac
  ln -sfn kubelot-all "$out/$link"
done
