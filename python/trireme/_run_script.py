"""`python -m trireme._run_script script.py args...`, started by `trireme run`.

The warm process starts to import the script's frameworks immediately, in parallel with the script itself.
"""

from __future__ import annotations

import os
import runpy
import sys

from trireme._preload import frameworks_of


def run_script(words: list[str]) -> None:
    """words: the path of the script, and its arguments."""
    script = words[0]
    try:
        with open(script, encoding="utf-8", errors="replace") as file:
            source = file.read()
    except OSError as error:
        sys.exit(f"cannot run {script}: {error.strerror}")
    from trireme._runtime import warm_up

    warm_up(frameworks_of(source))
    sys.argv[:] = words
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit("usage: python -m trireme._run_script script.py [args...]")
    run_script(sys.argv[1:])


if __name__ == "__main__":
    main()
