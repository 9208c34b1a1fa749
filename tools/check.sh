#!/usr/bin/env bash
# Everything that can be said about the tree without running it. `make fix` mends what a machine can mend.
. "$(dirname "$0")/lib.sh"

formatted() {
  local bad
  bad=$(go_files | xargs -r gofumpt -l)
  if [ -n "$bad" ]; then
    echo "not formatted (make fmt mends it):"
    echo "$bad"
    return 1
  fi
}

generated() {
  go -C "$root/crew" run ./cmd/contracts -check || {
    echo "generated files are out of date: make gen mends it"
    return 1
  }
}

arch() { go -C "$root/crew" test -count=1 -run 'TestArch' ./...; }

units() { "$root/tools/verify-units.sh"; }

scripts() {
  local file
  for file in "$root"/tools/*.sh "$root/.ci/run"; do bash -n "$file" || return 1; done
  shellcheck --severity=warning -x -P SCRIPTDIR "$root"/tools/*.sh "$root/.ci/run"
}

vulnerabilities() {
  local dir out
  if ! curl -sf --max-time 5 -o /dev/null https://vuln.go.dev/index/modules.json; then
    echo "the Go vulnerability database can't be reached from here: govulncheck is left out"
    return 0
  fi
  for dir in $(modules); do
    out=$(cd "$dir" && govulncheck ./... 2>&1) || { echo "$out"; return 1; }
  done
}

debian_tools() { need shellcheck=shellcheck systemd-analyze=systemd; }

step "developer tools" "$root/tools/devtools.sh"
step "tools of Debian" debian_tools
try "scripts" scripts
try "tests that need a second run fail" "$root/tools/suite_test.sh"
try "format" formatted
try "generated files" generated
try "each module alone (GOWORK=off)" alone
try "import rules and sizes" arch
try "golangci-lint" lint
try "systemd units" units
try "vulnerabilities" vulnerabilities
verdict check
