#!/usr/bin/env bash
# tools/stage.sh FILE NAME COMMAND...  runs the command and adds its name, start and end to the file
# tools/stage.sh FILE                  prints the table of all stages in the file
set -euo pipefail
file=$1

if [[ $# -eq 1 ]]; then
  # Stages overlap, so the total is not their sum.
  sort -t $'\t' -n -k 2 "$file" | awk -F '\t' '
    BEGIN {printf "\n%-28s %8s %8s\n", "stage", "from", "minutes"}
    NR == 1 {first = $2}
    {printf "%-28s %8.1f %8.1f\n", $1, ($2 - first) / 60, ($3 - $2) / 60; if ($3 > last) last = $3}
    END {printf "%-28s %8s %8.1f\n", "total", "", (last - first) / 60}'
  exit 0
fi

name=$2
shift 2
mkdir -p "$(dirname "$file")"
printf '\n== %s\n' "$name"
start=$(date +%s)
"$@" || { code=$?; printf '\n== FAILED: %s\n' "$name" >&2; exit "$code"; }
printf '%s\t%s\t%s\n' "$name" "$start" "$(date +%s)" >> "$file"
