#!/usr/bin/env bash
# Removes what make run, make cluster and make vm left behind if they were killed, and everything that was built.
. "$(dirname "$0")/lib.sh"

for mode in standalone cluster vm vm-test; do
  if [ -d "$root/.run/$mode" ] && [ -x "$bin/testbed" ]; then
    step "clean .run/$mode" "$bin/testbed" clean --dir "$root/.run/$mode"
  fi
done
rm -rf "$root/.run" "$root/.cache" "$bin"
