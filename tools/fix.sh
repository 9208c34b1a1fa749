#!/usr/bin/env bash
# Mends what `make check` complains about, as far as a machine can.
. "$(dirname "$0")/lib.sh"

tidy() {
  local dir
  for dir in $(modules); do (cd "$dir" && GOWORK=off go mod tidy); done
}

lint_fix() {
  local dir
  # What is left after the fix is for a person; make check shows it.
  for dir in $(modules); do (cd "$dir" && golangci-lint run --allow-parallel-runners --config "$root/.golangci.yml" --fix ./... >/dev/null 2>&1) || true; done
}

step "developer tools" "$root/tools/devtools.sh"
step "format" "$root/tools/fmt.sh"
step "go.mod files" tidy
step "generated files" go -C "$root/crew" run ./cmd/contracts
step "golangci-lint --fix" lint_fix
