#!/usr/bin/env bash
# tidy.sh BUILD_DIR FILE: runs clang-tidy on one file and prints its findings, or that it is clean.
set -euo pipefail
if output=$(clang-tidy --quiet -p "$1" "$2" 2>&1); then
  echo "$2: clean"
elif grep -q "coroutine_traits type was not found\|'awaitable' in namespace 'asio'" <<< "$output"; then
  echo "$2: skipped: needs a clang-tidy with C++20 coroutines (15 or later)"
else
  grep -v "warnings generated\|warnings and .* errors generated\|^Suppressed\|^Use -header-filter" <<< "$output"
  exit 1
fi
