"""The C++ programs that tests run, and their results."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import trireme

ROOT = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("TRIREME_BUILD_DIR", ROOT / "build/release"))
EXAMPLES = BUILD / "examples/cpp"

# Some virtual machines report AMX but do not support it (SIGILL).
ENVIRONMENT = {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}


def run(program: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=BUILD,
        env=os.environ | ENVIRONMENT,
    )


def checked(program: Path, *arguments: object) -> str:
    done = run(program, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def result_of(name: str) -> trireme.Result:
    return trireme.Result.from_path(Path(os.environ["TRIREME_RESULTS"]) / name)


def metrics(result: trireme.Result) -> dict[str, Any]:
    assert result.metrics is not None
    return result.metrics
