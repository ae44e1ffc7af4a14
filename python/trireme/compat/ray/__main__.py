"""`python -m trireme.compat.ray [--report] script.py args...`; `trireme run --ray-compat script.py` starts this."""

from __future__ import annotations

import sys

from trireme._run_script import run_script
from trireme.compat.ray import _usage

_USAGE = "usage: python -m trireme.compat.ray [--report] script.py [args...]"


def main(arguments: list[str]) -> None:
    report = arguments[:1] == ["--report"]
    words = arguments[1:] if report else arguments
    if not words or words[0].startswith("-"):
        sys.exit(_USAGE)
    if not report:
        run_script(words)
        return
    _usage.collect()
    try:
        run_script(words)
    finally:
        print(_usage.table(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
