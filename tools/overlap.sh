#!/usr/bin/env bash
# tools/overlap.sh LOG FIRST SECOND
# Runs two shell commands at the same time. The first prints to the terminal; the output of the second is written to LOG
# and printed when one of them has ended. If one fails, the other is stopped at once, and this script exits with the code
# of the one that failed.
set -euo pipefail
log=$1
mkdir -p "$(dirname "$log")"

set -m  # each in its own process group, which can be stopped with all its children
bash -c "$2" < /dev/null &
first=$!
bash -c "$3" < /dev/null > "$log" 2>&1 &
second=$!
set +m

stop() {
  for leader in "$@"; do kill -TERM -- "-$leader" 2> /dev/null || true; done
  wait "$@" 2> /dev/null || true
}
trap 'stop "$first" "$second"; exit 130' INT
trap 'stop "$first" "$second"; exit 143' TERM

code=0
wait -n -p ended "$first" "$second" || code=$?
if ((ended == second)); then
  cat "$log"
  other=$first
else
  other=$second
fi
if ((code)); then
  stop "$other"
  exit "$code"
fi
((other == first)) || tail -n +1 -f --pid="$second" "$log"
wait "$other"
