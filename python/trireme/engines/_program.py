"""Sends a C++ program to a host that does not have it, over the connection that starts its agent."""

from __future__ import annotations

import hashlib
import os
from typing import IO

# Runs on the host. Its own file is used if it is the same program; otherwise a copy that is named after its content and
# stays for the next run. The folder must be this user's: others must not be able to replace the copy.
_SCRIPT = """
own=$1 want=$2 size=$3
sum() { sha256sum "$1" 2>/dev/null | cut -c1-64; }
if [ "$(sum "$own")" = "$want" ]; then
  program=$own
else
  folder=${TMPDIR:-/tmp}/trireme-$(id -u)/programs
  program=$folder/$want
  (umask 077 && mkdir -p "$folder") || exit 1
  if ! [ -O "$folder" ] || ! [ -O "${folder%/*}" ]; then
    echo "$folder belongs to another user; set TMPDIR on this host" >&2
    exit 1
  fi
  if [ "$(sum "$program")" != "$want" ]; then
    echo trireme-send
    part=$(mktemp "$program.XXXXXX") || exit 1
    head -c "$size" > "$part" && chmod 700 "$part"
    # A copy that another agent has stored in the meantime is not replaced: that agent executes it.
    ln "$part" "$program" 2>/dev/null || [ "$(sum "$program")" = "$want" ] || mv -f "$part" "$program"
    rm -f "$part"
    if [ "$(sum "$program")" != "$want" ]; then
      echo "could not store the program as $program" >&2
      exit 1
    fi
  fi
fi
echo trireme-ready
exec "$program"
"""
_SEND, _READY = b"trireme-send", b"trireme-ready"


class Program:
    """A program of this machine."""

    def __init__(self, path: str) -> None:
        self._path = path
        with open(path, "rb") as file:
            self._digest = hashlib.file_digest(file, "sha256").hexdigest()
        self._size = os.path.getsize(path)

    def command(self) -> list[str]:
        """Starts it on the host; serve() must answer."""
        return ["sh", "-c", _SCRIPT, "trireme", self._path, self._digest, str(self._size)]

    def serve(self, output: IO[bytes], standard_input: IO[bytes], log: IO[str]) -> None:
        """Sends it if the host asks. Returns when it has started, or will not."""
        for line in output:
            if line.strip() == _READY:
                return
            if line.strip() == _SEND:
                with open(self._path, "rb") as file:
                    while block := file.read(1 << 20):
                        standard_input.write(block)
                standard_input.flush()
            else:
                log.write(line.decode(errors="replace"))
