#!/usr/bin/env bash
# Runs a command on a machine that stands still for 2 to 7 seconds, every 10 to 35 seconds: processes of real-time
# priority take all processors. As root:
#
#   tools/stall.sh env GOWORK=off go -C test test ./e2e/crash -count=1 -v -run TestKilledDaemon
set -euo pipefail

# stall takes all processors for some seconds. What ends it has a higher priority, or it would never run.
stall() {
  local seconds=$1 processor
  for processor in $(seq 0 $(($(nproc) - 1))); do
    chrt -f 60 timeout "$seconds" taskset -c "$processor" chrt -f 50 bash -c 'while :; do :; done' &
  done
  wait
}

"$@" &
command=$!
trap 'kill "$command" 2>/dev/null || true' EXIT
while sleep $((10 + RANDOM % 26)) && kill -0 "$command" 2>/dev/null; do
  seconds=$((2 + RANDOM % 6))
  stall "$seconds" & # a shell of its own waits for its processes alone
  wait $!
  echo "stall: the machine stood still for $seconds s" >&2
done
wait "$command"
