"""The `trireme` command: runs the package's C++ program and sets the Python that it uses for scripts."""

from __future__ import annotations

import os
import sys

import trireme


def program() -> str | None:
    """None: this installation is incomplete."""
    # An editable installation has two folders: the sources and the compiled parts.
    programs = (os.path.join(folder, "bin", "trireme") for folder in trireme.__path__)
    return next((path for path in programs if os.access(path, os.X_OK)), None)


def main() -> None:
    found = program()
    if found is None:
        folder = os.path.dirname(__file__)
        sys.exit(f"{folder}/bin/trireme is missing: this installation of trireme is incomplete; reinstall it")
    os.environ["TRIREME_PYTHON"] = sys.executable
    os.execv(found, [found, *sys.argv[1:]])


if __name__ == "__main__":
    main()
