#!/usr/bin/env bash
# Mends what `make check` complains about, as far as a machine can.
. "$(dirname "$0")/lib.sh"

tidy() {
  local dir
  for dir in $(modules) $(outside_modules); do (cd "$dir" && GOWORK=off go mod tidy) || return; done
}

# What is left after it is for a person; make check shows it.
lint_fix() { lint --fix >/dev/null 2>&1 || true; }

step "developer tools" "$root/tools/devtools.sh"
step "format" "$root/tools/fmt.sh"
step "go.mod files" tidy
step "generated files" go -C "$root/crew" run ./cmd/contracts
step "golangci-lint --fix" lint_fix
