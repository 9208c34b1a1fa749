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
    if [ -n "$(find "${mod%/go.mod}" -name '*_test.go' -print -quit)" ]; then echo "${mod%/go.mod}"; fi
  done
}

# go_files are the Go files that belong to the repository.
go_files() { git -C "$root" ls-files '*.go' | sed "s|^|$root/|"; }

# lint runs the linters over every module by itself, with more flags for them. What can't be loaded, and a linter that can't
# run, are failures too.
lint() {
  local dir failed=0
  for dir in $(modules) $(test_modules); do
    printf '   %s\n' "${dir#"$root"/}"
    (cd "$dir" && GOWORK=off FAIL_ON_WARNINGS=1 golangci-lint run --allow-parallel-runners --config "$root/.golangci.yml" "$@" ./...) || failed=1
  done
  return $failed
}

say() { printf '== %s\n' "$*"; }

# step runs a command under a name, shows how long it took, and ends the script if it fails. A function ends with its last
# line and not with the first that fails: join them.
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
  local name=$1 begin=$SECONDS code
  shift
  say "$name ..."
  # Not in a condition: bash goes on after a failed line there, set -e or not.
  set +e
  (set -e; "$@")
  code=$?
  set -e
  if [ $code -eq 0 ]; then
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

testbed_tools() { (cd "$root/test/harness" && GOWORK=off go run ./cmd/testbed tools); }

# programs builds kubelot and what the test bed runs, itself included; the latter takes minutes the first time only.
programs() {
  step "build kubelot" "$root/tools/build.sh"
  step "test bed's programs" testbed_tools
}

# need_root ends the script unless root runs it; the argument is what to run as root instead.
need_root() {
  if [ "$(id -u)" -ne 0 ]; then
    say "pods need root: run it as root (sudo make $1)"
    exit 1
  fi
}
