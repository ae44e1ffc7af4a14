#!/usr/bin/env bash
# tools/stage.sh FILE NAME COMMAND...  runs the command and adds its name and seconds to the file
# tools/stage.sh FILE                  prints the table of all stages in the file
set -euo pipefail
file=$1

if [[ $# -eq 1 ]]; then
  printf '\n%-28s %8s\n' stage minutes
  awk -F '\t' '{printf "%-28s %8.1f\n", $1, $2 / 60; total += $2} END {printf "%-28s %8.1f\n", "total", total / 60}' "$file"
  exit 0
fi

name=$2
shift 2
mkdir -p "$(dirname "$file")"
printf '\n== %s\n' "$name"
SECONDS=0
"$@"
printf '%s\t%s\n' "$name" "$SECONDS" >> "$file"
