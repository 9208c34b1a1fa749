#!/usr/bin/env bash
# Runs every fuzz target of the workspace for a time, a line each: FOR=1m says how long, TARGET=expression which (as
# package.FuzzName). An input that fails stays in testdata/fuzz next to the test, where the unit tests try it from then
# on.
. "$(dirname "$0")/lib.sh"
time=${FOR:-1m}
chosen=${TARGET:-.}

# targets lists "directory FuzzName".
targets() {
  git -C "$root" ls-files '*_test.go' | sed "s|^|$root/|" | xargs grep -H '^func Fuzz' |
    sed -E 's|^(.*)/[^/]*_test\.go:func (Fuzz[A-Za-z0-9_]*).*|\1 \2|' | sort
}

out=$(mktemp)
trap 'rm -f "$out"' EXIT
count=0
while read -r dir target; do
  name=${dir#"$root"/}.$target
  [[ $name =~ $chosen ]] || continue
  count=$((count + 1))
  if go -C "$dir" test . -run '^$' -fuzz "^$target\$" -fuzztime "$time" >"$out" 2>&1 </dev/null; then
    printf '%-60s ok, %s\n' "$name" "$(grep -o 'execs: [0-9]*' "$out" | tail -n 1)"
  else
    failures+=("$name")
    printf '%-60s FAILED:\n' "$name"
    grep -v '^fuzz: elapsed' "$out"
  fi
done < <(targets)
say "$count targets for $time each"
verdict fuzz
