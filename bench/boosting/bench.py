"""XGBoost and LightGBM with two workers: Trireme from Python and C++, Ray Train with Ray Data, the library itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from boosting.job import COLUMNS, ROUNDS, ROWS, write_rows
from measure import Options, Outcome, alternate, median, program, run, times, workplace

_HERE = Path(__file__).parent
_LIBRARIES = ("xgboost", "lightgbm")
_OURS, _CPP, _RAY, _OWN = "Trireme", "Trireme from C++", "Ray Train", "the library"
_TITLES = {
    "whole": "the whole job, s",
    "start": "start of the script to the first round of both, s",
    "round": "one round, ms",
    "memory": "peak memory of the job (PSS), MB",
    "kill": "SIGKILL of a rank to the next round of both, s",
}
# The ratio to a peer that is the goal.
_GOALS = {
    ("whole", _RAY): 3, ("start", _RAY): 8, ("kill", _RAY): 20, ("round", _OWN): 0.9, ("memory", _RAY): 2,
    ("whole", _CPP): 1,
}  # fmt: skip

Found = dict[str, float]


def measure(options: Options) -> Outcome:
    measurements = options.chosen(_TITLES)
    peers = [_OWN, *([_RAY] if options.peers else []), *([_CPP] if Path(options.boosting).exists() else [])]
    outcome = Outcome(
        f"boosting: {ROWS:,} rows, {COLUMNS} columns, {ROUNDS} rounds, two workers of one thread on this machine",
        ["", _OURS, *peers, "ratios (goals)"],
        measured={},
    )
    with tempfile.TemporaryDirectory(prefix="trireme-bench-rows-") as rows:
        write_rows(Path(rows))
        for library in options.chosen(_LIBRARIES):
            forms = _forms(library, Path(rows), options, measurements)
            measured = alternate(forms, options.repeat)
            outcome.measured[library] = measured
            outcome.rows += [_row(library, name, measured, [_OURS, *peers]) for name in measurements]
    return outcome


def _forms(library: str, rows: Path, options: Options, measurements: list[str]) -> dict[str, Callable[[], Found]]:
    ours = [*program("trireme"), "run", "trireme_script.py", library]
    ray = [str(options.peers / "python"), "ray_script.py", library] if options.peers else []
    forms: dict[str, Callable[[], Found]] = {}
    if measurements != ["kill"]:
        forms[_OURS] = _job(ours, rows, _read_events)
        forms[_OWN] = _job([*program("python"), "own_script.py", library], rows)
        if ray:
            forms[_RAY] = _job(ray, rows)
        if Path(options.boosting).exists():
            forms[_CPP] = _job([options.boosting, library], rows, _read_events)
    if "kill" in measurements:
        forms[f"{_OURS}, killed"] = _job(ours, rows, _read_kill)
        if ray:
            forms[f"{_RAY}, killed"] = _job(ray, rows, _read_kill)
    return forms


def _job(command: list[str], rows: Path, read: Callable[[Path, float], Found] | None = None) -> Callable[[], Found]:
    def once() -> Found:
        with workplace() as (folder, env):
            env.update(BENCH_ROWS=str(rows), PYTHONPATH=str(_HERE), **_libraries())
            if read is _read_kill:
                env["BENCH_KILL"] = "1"
            begin = time.time()
            with _Memory(str(folder)) as memory:
                run(command, env, _HERE)
            whole = time.time() - begin
            found = (read or _read_stamps)(folder, begin)
            return found if read is _read_kill else {**found, "whole": whole, "memory": memory.peak}

    return once


def _libraries() -> dict[str, str]:
    """The packages of this environment, for the C++ program."""
    code = "import xgboost, lightgbm; print(xgboost.__path__[0]); print(lightgbm.__path__[0])"
    xgboost, lightgbm = subprocess.check_output([sys.executable, "-c", code], text=True).split()
    return {
        "TRIREME_XGBOOST_LIBRARY": f"{xgboost}/lib/libxgboost.so",
        "TRIREME_LIGHTGBM_LIBRARY": f"{lightgbm}/lib/lib_lightgbm.so",
    }


def _read_stamps(folder: Path, begin: float) -> Found:
    ranks = [[at for what, at in _stamps(folder, rank) if what == "round"] for rank in range(2)]
    return _rounds(ranks, begin)


def _read_events(folder: Path, begin: float) -> Found:
    """The trainers report every round."""
    (log,) = (folder / "results").glob("*/events.jsonl")
    reports = [each for each in map(json.loads, log.read_text().splitlines()) if each["event"] == "report"]
    ranks = [[each["time"] for each in reports if each["rank"] == rank and "checkpoint" not in each] for rank in (0, 1)]
    return _rounds(ranks, begin)


def _rounds(ranks: list[list[float]], begin: float) -> Found:
    gaps = [(rounds[-1] - rounds[0]) / (len(rounds) - 1) for rounds in ranks]
    return {"start": max(rounds[0] for rounds in ranks) - begin, "round": 1000 * median(gaps)}


def _read_kill(folder: Path, begin: float) -> Found:
    fault = next(at for what, at in _stamps(folder, 1) if what == "fault")
    # Rank 1 has no rounds between its death and its next attempt.
    again = next(at for what, at in _stamps(folder, 1) if what == "round" and at > fault)
    other = next(at for what, at in _stamps(folder, 0) if what == "round" and at > fault)
    return {"kill": max(again, other) - fault}


def _stamps(folder: Path, rank: int) -> list[tuple[str, float]]:
    lines = (folder / f"rank_{rank}.txt").read_text().splitlines()
    return [(what, float(at)) for what, at in (line.split() for line in lines)]


class _Memory:
    """The largest sum of the proportional memory of all processes whose environment names the folder, in MB."""

    _EVERY_S = 0.25

    def __init__(self, folder: str) -> None:
        self.peak = 0.0
        self._mark = f"BENCH_FOLDER={folder}".encode()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> _Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(self._EVERY_S):
            total = sum(self._pss(process) for process in filter(str.isdigit, os.listdir("/proc")))
            self.peak = max(self.peak, total / 1024)

    def _pss(self, process: str) -> int:
        try:
            if self._mark not in Path("/proc", process, "environ").read_bytes().split(b"\0"):
                return 0
            lines = Path("/proc", process, "smaps_rollup").read_text().splitlines()
        except OSError:  # it has ended
            return 0
        return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def _row(library: str, name: str, measured: dict[str, list[Found]], shown: list[str]) -> list[str]:
    kind = ", killed" if name == "kill" else ""
    values = {who: _median(measured.get(f"{who}{kind}", ()), name) for who in shown}
    ratios = [
        f"{who} {times(value, ours)} ({_GOALS[name, who]}x)"
        for who in shown
        if (ours := values[_OURS]) and (value := values[who]) and (name, who) in _GOALS
    ]
    cells = ["" if value is None else f"{value:.2f}" for value in values.values()]
    return [f"{library}: {_TITLES[name]}", *cells, ", ".join(ratios)]


def _median(found: Iterable[Found], name: str) -> float | None:
    values = [each[name] for each in found if name in each]
    return median(values) if values else None
