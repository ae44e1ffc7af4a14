"""Runs scripts under compatibility mode, in one driver, and prints what each records: python run_compat.py NAME..."""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import sys
import traceback
from pathlib import Path

import trireme.compat.ray  # noqa: F401
from trireme.compat.ray import _version

SCRIPTS = Path(__file__).resolve().parent / "scripts"


def main(names: list[str]) -> None:
    sys.path.insert(0, str(SCRIPTS))
    os.environ.pop("RAY_TRAIN_V2_ENABLED", None)
    for name in names:
        _version._signs.clear()  # as if each script had a process of its own
        output = io.StringIO()
        try:
            with contextlib.redirect_stdout(output):
                runpy.run_path(str(SCRIPTS / f"{name}.py"), run_name="__main__")
        except BaseException:
            print(output.getvalue(), file=sys.stderr)
            traceback.print_exc()
        lines = [line[7:] for line in output.getvalue().splitlines() if line.startswith("RECORD ")]
        print(f"SCRIPT {name} {lines[-1] if lines else 'null'}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
