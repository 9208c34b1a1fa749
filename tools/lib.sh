# shellcheck shell=bash
# Shared by the scripts next to it: where things are, and steps that say how long they took.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
bin=$root/.bin
export PATH=$bin:$PATH

# modules are the directories of all modules that make up the product.
modules() { go -C "$root" list -m -f '{{.Dir}}'; }

# outside_modules are the modules that aren't in the workspace: what tests and the packager need is not to get into the
# product. Those below test/testbed/programs only build programs of others.
outside_modules() { printf '%s\n' "$root/test" "$root/test/differential" "$root/tools/packages"; }

# go_files are the Go files that belong to the repository.
go_files() { git -C "$root" ls-files '*.go' | sed "s|^|$root/|"; }

# lint runs the linters, with more flags for them: over all modules of the workspace at once, since each needs what was
# found in those below it, and over each module outside it. What can't be loaded, and a linter that can't run, are
# failures.
lint() {
  local dir patterns failed=0
  mapfile -t patterns < <(modules | sed 's|$|/...|')
  (cd "$root" && FAIL_ON_WARNINGS=1 golangci-lint run --allow-parallel-runners "$@" "${patterns[@]}") || failed=1
  for dir in $(outside_modules); do
    printf '   %s\n' "${dir#"$root"/}"
    (cd "$dir" && GOWORK=off FAIL_ON_WARNINGS=1 golangci-lint run --allow-parallel-runners \
      --config "$root/.golangci.yml" "$@" ./...) || failed=1
  done
  return $failed
}

# alone compiles each module with its tests without the workspace, as somebody who depends on it would, and looks at its
# go.mod. Several go side by side: much of it is waiting for go list. Vetting is the linters' part, so one check is
# enough.
alone() { modules | root=$root xargs -P "$(nproc)" -I{} bash -c 'alone_module {}'; }

alone_module() {
  local out code=0 lint=(golangci-lint run --allow-parallel-runners --config "$root/.golangci.yml")
  out=$(cd "$1" && GOWORK=off go vet -unreachable ./... 2>&1 &&
    GOWORK=off "${lint[@]}" --enable-only gomoddirectives . 2>&1) || code=$?
  printf '   %s%s\n' "${1#"$root"/}" "${out:+: $out}"
  [ $code -eq 0 ]
}
export -f alone_module

say() { printf '== %s\n' "$*"; }

# step runs a command under a name, shows how long it took, and ends the script if it fails. A function ends with its
# last line and not with the first that fails: join them.
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

# go_build runs a build and shows how far it is instead of what go prints for each module and package: on a terminal a
# line that counts up, elsewhere nothing. What go says beyond that is shown. The command needs go's flag -v.
go_build() {
  "$@" 2>&1 | {
    local line modules=0 packages=0 shown=$SECONDS
    while IFS= read -r line; do
      case $line in
      "go: downloading "*) modules=$((modules + 1)) ;;
      *[!A-Za-z0-9._/~+-]* | "") printf '%s\n' "$line" ;;
      *) packages=$((packages + 1)) ;;
      esac
      if [ -t 1 ] && [ "$SECONDS" -gt "$shown" ]; then
        shown=$SECONDS
        printf '\r   %d modules fetched, %d packages compiled ' "$modules" "$packages"
      fi
    done
    if [ -t 1 ] && [ $((modules + packages)) -gt 0 ]; then printf '\r\033[K'; fi
  }
}

# has_test reports whether the tests in a directory have a function that go test -run takes for an expression. Of the
# expression that is what stands before a slash, in each alternative: the rest is for parts of tests.
has_test() {
  local functions
  functions=$(EXPRESSION=$2 awk 'BEGIN {
    e = ENVIRON["EXPRESSION"]
    for (i = 1; i <= length(e); i++) {
      c = substr(e, i, 1)
      if (c == "\\") c = substr(e, i++, 2)
      if (c ~ /^[[(]$/) depth++
      if (c ~ /^[])]$/) depth--
      if (depth == 0 && c == "/") below = 1
      if (depth == 0 && c == "|") below = 0
      if (!below) out = out c
    }
    print out
  }')
  sed -n 's/^func \(Test[A-Za-z0-9_]*\)(t .*/\1/p' "$1"/*_test.go | grep -Eq -- "$functions"
}

# ran reports whether what go test -v has said, a file, has a test as deep as an expression names one: go test takes it
# for a success if no part of a test has the name.
ran() {
  local slashes=${2%%|*}
  slashes=${slashes//[!\/]/}
  grep -q "^=== RUN  *${slashes//\//[^\/]*\/}" "$1" && return
  echo "no test matches $2"
  return 1
}

build_testbed() {
  mkdir -p "$bin"
  CGO_ENABLED=0 GOWORK=off go_build go -C "$root/test" build -v -o "$bin/testbed" ./testbed/cmd/testbed
}

# programs builds kubelot and what the test bed runs, itself included; the latter takes minutes the first time only.
# With --standalone it leaves out what a node without a control plane doesn't need: kubelot's API server, and
# Kubernetes. With --tests it also builds what the suites want on demand.
programs() {
  local of_kubelot=() of_testbed=()
  case ${1:-} in
  --standalone)
    of_kubelot=(--multi-call)
    of_testbed=(--runtime-only)
    ;;
  --tests) of_testbed=(--tests) ;;
  esac
  step "build kubelot" "$root/tools/build.sh" "${of_kubelot[@]}"
  step "build the test bed" build_testbed
  step "build the test bed's programs" "$bin/testbed" tools "${of_testbed[@]}"
}

# need has programs there, each given as program=package of Debian. Root installs what is missing; anybody else is told
# how.
need() {
  local pair missing=()
  for pair in "$@"; do
    command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
    echo "this needs programs of the Debian packages ${missing[*]}: sudo apt-get install ${missing[*]}"
    return 1
  fi
  echo "installing Debian packages: ${missing[*]}"
  local wait=(-q -o DPkg::Lock::Timeout=300)
  export DEBIAN_FRONTEND=noninteractive
  apt-get update "${wait[@]}" >/dev/null &&
    apt-get install "${wait[@]}" -y --no-install-recommends "${missing[@]}" >/dev/null || return
  hash -r
  for pair in "$@"; do
    if ! command -v "${pair%%=*}" >/dev/null; then
      echo "package ${pair#*=} is installed, but there is no ${pair%%=*}"
      return 1
    fi
  done
}

# need_root ends the script unless root runs it; the argument is what to run as root instead.
need_root() {
  if [ "$(id -u)" -ne 0 ]; then
    say "pods need root: run it as root (sudo make $1)"
    exit 1
  fi
}
