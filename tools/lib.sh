# Shared by the scripts beside it: where things are, and steps that say how long they took.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bin=$root/.bin
export PATH=$bin:$PATH

# modules are the directories of all modules that make up the product.
modules() { go -C "$root" list -m -f '{{.Dir}}'; }

# test_modules are the test modules that check something by themselves.
test_modules() {
  local mod
  for mod in "$root"/test/*/go.mod; do
    case $mod in */controlplane/* | */bench/*) continue ;; esac
    if [ -n "$(find "${mod%/go.mod}" -name '*_test.go' -print -quit)" ]; then echo "${mod%/go.mod}"; fi
  done
}

say() { printf '== %s\n' "$*"; }

# step runs a command under a name, shows how long it took, and ends the script if it fails.
step() {
  local name=$1 begin=$SECONDS code=0
  shift
  say "$name ..."
  "$@" || code=$?
  if [ $code -ne 0 ]; then
    say "$name FAILED after $((SECONDS - begin)) s: $*"
    exit $code
  fi
  say "$name: ok, $((SECONDS - begin)) s"
}

failures=()

# try is step for a check among others: a failure is remembered and the next one runs. verdict tells at the end.
try() {
  local name=$1 begin=$SECONDS
  shift
  say "$name ..."
  if (set -e; "$@"); then
    say "$name: ok, $((SECONDS - begin)) s"
  else
    say "$name FAILED after $((SECONDS - begin)) s"
    failures+=("$name")
  fi
}

verdict() {
  if [ ${#failures[@]} -eq 0 ]; then
    say "$1: all ok, $SECONDS s"
    return 0
  fi
  say "$1 FAILED after $SECONDS s: $(printf '%s; ' "${failures[@]}")"
  return 1
}

# testbed builds what the test bed runs, itself included; that takes minutes the first time only.
testbed_tools() { (cd "$root/test/harness" && GOWORK=off go run ./cmd/testbed tools); }
