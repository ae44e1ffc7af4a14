"""`python -m trireme._run_script script.py args...`: what `trireme run` starts.

The warm process begins to import the script's frameworks at once, while the script itself still does so too.
"""

from __future__ import annotations

import os
import re
import runpy
import sys

# Those that import single-threaded, so that workers can be forked after them.
_WORTH_WARMING = ("torch", "numpy")
_IMPORT = re.compile(r"^\s*(?:from|import)\s+((?:trireme\.)?\w+)", re.MULTILINE)


def frameworks_of(source: str) -> list[str]:
    """A cheap look at the text. A wrong guess costs a little warmth, nothing else."""
    imported = {name.removeprefix("trireme.") for name in _IMPORT.findall(source)}
    return [name for name in _WORTH_WARMING if name in imported]


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
