"""Runs scripts under compatibility mode, for comparison with what they recorded under real Ray."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def run(names: Sequence[str], storage: Path) -> dict[str, Any]:
    """What each script records. All run in one driver, whose warm process imports the frameworks once."""
    folders = {"COMPAT_STORAGE": str(storage), "TRIREME_RESULTS": str(storage / "ray_results")}
    environment = {**os.environ, **folders}
    command = [sys.executable, str(HERE / "run_compat.py"), *names]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    lines = [line.split(" ", 2) for line in done.stdout.splitlines() if line.startswith("SCRIPT ")]
    found = {name: json.loads(text) for _, name, text in lines}
    assert all(found.values()), done.stderr
    return found


def differences(names: Sequence[str], storage: Path) -> str:
    """How what the scripts record differs from what they recorded under Ray; empty if it does not."""
    found = run(names, storage)
    return "\n".join(text for name in names for text in _differences(name, recorded(name), found[name]))


def _differences(where: str, theirs: Any, ours: Any) -> list[str]:
    if type(theirs) is type(ours) is dict:
        both = {**theirs, **ours}
        return [line for name in both for line in _differences(f"{where}.{name}", theirs.get(name), ours.get(name))]
    return [] if theirs == ours else [f"{where}: Ray {theirs!r}", f"{' ' * len(where)}  Trireme {ours!r}"]


def recorded(name: str) -> Any:
    return json.loads((HERE / "recordings" / f"{name}.json").read_text())


def run_guide(name: str, folder: Path) -> None:
    """A script of guides/, as `trireme run --ray-compat` runs it."""
    environment = {**os.environ, "TRIREME_RESULTS": str(folder / "results"), "GUIDE_FOLDER": str(folder)}
    command = [sys.executable, "-m", "trireme.compat.ray", str(HERE / "guides" / f"{name}.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=folder)
    assert done.returncode == 0 and "GUIDE DONE" in done.stdout, done.stdout + done.stderr
