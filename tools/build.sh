#!/usr/bin/env bash
# Builds the executables with a link per daemon into .bin or into the directory given. Daemons share an executable with those that
# link the same (docs/adr/0015); kubelot-all has all of them but api, and the command line tool.
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
executable services/podsync kubelot-podsync
executable bus/embed kubelot-bus
ln -sfn kubelot-all "$out/kubelot"
for group in runtime apiserver; do
  executable crew "kubelot-$group"
  for name in $("$out/kubelot-$group" 2>&1 | sed 's/.*only: //; s/,//g'); do
    ln -sfn "kubelot-$group" "$out/kubelot-$name"
  done
done
