"""Shared by all benchmarks: folders, environments, processes, medians and tables."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_PATIENCE_S = 900


@dataclass
class Options:
    repeat: int
    peers: Path | None  # bin folder of the peers' venv
    scale: str  # the C++ program of bench/scale
    ddp: str  # that of bench/ddp; only built if libtorch was found
    recover: str  # that of bench/recover, likewise
    only: Sequence[str] = ()
    boosting: str = ""  # that of bench/boosting; only built if Arrow was found

    def chosen(self, names: Iterable[str]) -> list[str]:
        """Those that `--only` names; all if it names none of them."""
        names = list(names)
        return [name for name in names if name in self.only] or names


@dataclass
class Outcome:
    """The results of one benchmark: rows for the terminal, every measurement for a file."""

    title: str
    columns: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    measured: dict[str, Any] = field(default_factory=dict)


def program(name: str) -> list[str]:
    """A command in the environment of this interpreter."""
    return [str(Path(sys.executable).parent / name)]


@contextmanager
def workplace() -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder for the files of a run, and an environment that redirects all output there."""
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as name:
        folder = Path(name)
        env = {key: value for key, value in os.environ.items() if not key.startswith(("RAY_", "TRIREME_", "OMP_"))}
        env.update(
            BENCH_FOLDER=name,
            TRIREME_RESULTS=f"{name}/results",
            TRIREME_STATE_DIR=f"{name}/state",
            RAY_USAGE_STATS_ENABLED="0",
            RAY_TRAIN_V2_ENABLED="1",
            RAY_TMPDIR=name,
            RAY_worker_niceness="0",  # not 15, which would slow its workers down if anything else runs
            OMP_NUM_THREADS="1",  # torchrun's default; the same for all
        )
        yield folder, env


def run(command: Sequence[str], env: dict[str, str], cwd: Path) -> str:
    done = subprocess.run(
        [*command], env=env, cwd=cwd, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=_PATIENCE_S
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} exited with code {done.returncode}:\n{done.stdout[-4000:]}")
    return done.stdout


def alternate(forms: dict[str, Callable[[], Any]], repeat: int) -> dict[str, list[Any]]:
    """Measures the variants in turn, so that other load on the machine affects all of them in the same way."""
    measured: dict[str, list[Any]] = {name: [] for name in forms}
    for number in range(repeat):
        for name, measure in forms.items():
            print(f"  {number + 1}/{repeat} {name}", file=sys.stderr, end="", flush=True)
            found = measure()
            print(f": {found}", file=sys.stderr, flush=True)  # a later one may fail
            measured[name].append(found)
    return measured


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def times(slow: float, fast: float) -> str:
    ratio = slow / fast
    return f"{ratio:.1f}x" if ratio < 100 else f"{ratio:,.0f}x"


def table(outcome: Outcome) -> str:
    lines = [tuple(outcome.columns), *map(tuple, outcome.rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(outcome.columns))]
    text = [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        for line in lines
    ]
    text.insert(1, "-" * len(text[0]))
    return "\n".join([outcome.title, *text])
