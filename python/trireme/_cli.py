"""The `trireme` command: the C++ program that comes with the package, told which Python to run scripts with."""

from __future__ import annotations

import os
import sys


def main() -> None:
    program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "trireme")
    if not os.access(program, os.X_OK):
        sys.exit(f"{program} is missing: this installation of trireme is incomplete; install it again")
    os.environ["TRIREME_PYTHON"] = sys.executable
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
