"""The peers have a separate venv, so that their dependencies do not affect the environment of Trireme."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from measure import ROOT

_PACKAGES = ("ray[train]==2.60.0", "torch")


def peers_bin(venv: Path, frameworks: bool = False) -> Path:
    """The bin folder of a venv with Ray Train and torchrun, and with the frameworks, created if it does not exist."""
    found = venv.absolute() / "bin"  # benchmarks run in folders of their own
    if not (found / "ray").exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        _install(found, _PACKAGES)
    if frameworks and not (found / "deepspeed").exists():
        # The versions of `make frameworks`, without the packages that only tests need.
        lines = (ROOT / "frameworks.txt").read_text().splitlines()
        _install(found, [line for line in lines if "==" in line])
    return found


def _install(found: Path, packages: Sequence[str]) -> None:
    print(f"Installing {', '.join(packages)} into {found.parent} (takes minutes)", flush=True)
    pip = [str(found / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--constraint", str(ROOT / "constraints.txt"), *packages], check=True)
