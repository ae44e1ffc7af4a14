"""The peers have a separate venv, so that their dependencies do not affect the environment of Trireme."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from measure import ROOT

_PACKAGES = ("ray[train]==2.60.0", "torch")


def peers_bin(venv: Path) -> Path:
    """The bin folder of a venv with Ray Train and torchrun, created if it does not exist."""
    found = venv / "bin"
    if not (found / "ray").exists():
        print(f"Installing {' and '.join(_PACKAGES)} into {venv} (takes minutes)", flush=True)
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
        pip = [str(found / "pip"), "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--constraint", str(ROOT / "constraints.txt"), *_PACKAGES], check=True)
    return found
