"""`python -m trireme._run_script script.py args...`, started by `trireme run`.

The warm process starts to import the script's frameworks immediately, in parallel with the script itself.
"""

from __future__ import annotations

import os
import runpy
import sys

from trireme._preload import frameworks_of


def main() -> None:
    if len(sys.argv) < 2:
        sys.exit("usage: python -m trireme._run_script script.py [args...]")
    script = sys.argv[1]
    try:
        with open(script, encoding="utf-8", errors="replace") as file:
            source = file.read()
    except OSError as error:
        sys.exit(f"cannot run {script}: {error.strerror}")
    from trireme._runtime import warm_up

    warm_up(frameworks_of(source))
    sys.argv[:] = sys.argv[1:]
    sys.path[0] = os.path.dirname(os.path.abspath(script))
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
