"""The `trireme` command: runs the package's C++ program and sets the Python that it uses for scripts."""

from __future__ import annotations

import os
import sys

import trireme


def main() -> None:
    # An editable installation has two folders: the sources and the compiled parts.
    programs = [os.path.join(folder, "bin", "trireme") for folder in trireme.__path__]
    program = next((path for path in programs if os.access(path, os.X_OK)), None)
    if program is None:
        sys.exit(f"{programs[0]} is missing: this installation of trireme is incomplete; reinstall it")
    os.environ["TRIREME_PYTHON"] = sys.executable
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
