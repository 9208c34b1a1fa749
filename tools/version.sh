#!/usr/bin/env bash
# Prints the version of the working tree, such as v0.1.0-12-g1a2b3c4: by the tags where git has them, otherwise by the
# list of releases in deploy/releases.txt.
. "$(dirname "$0")/lib.sh"

from_tags() { git -C "$root" describe --tags --match 'v*' --dirty 2>/dev/null; }

# from_list looks for the newest release that the tree is built on. A shallow clone may lack its commit.
from_list() {
  local release commit _ count found='' dirty=''
  while read -r release commit _; do
    if git -C "$root" merge-base --is-ancestor "$commit" HEAD 2>/dev/null; then
      count=$(git -C "$root" rev-list --count "$commit..HEAD")
      found=$release
      [ "$count" -eq 0 ] || found+="-$count-g$(git -C "$root" rev-parse --short=8 HEAD)"
    fi
  done < <(grep -v '^#' "$root/deploy/releases.txt")
  [ -n "$found" ] || return 1
  git -C "$root" diff --quiet HEAD || dirty=-dirty
  echo "$found$dirty"
}

from_tags || from_list || git -C "$root" describe --always --dirty 2>/dev/null || echo devel
