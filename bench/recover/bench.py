"""The time from the kill of a worker to the next step of all ranks: Trireme, Ray Train and torchrun."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from measure import Options, Outcome, alternate, median, times, workplace

_HERE = Path(__file__).parent
_FAULTS = 3
_PATIENCE_S = 60  # for the start, and for each fault

_PHASES = ("decide", "stop", "start", "rendezvous", "restore")
_RAY, _TORCHRUN = "Ray Train", "torchrun"
_STOPPED, _RESIZES = "Trireme, SIGSTOP", "resizes"
_RESIZED = {"4": "Trireme, resize from 2 to 4", "2": "Trireme, resize from 4 to 2"}

Found = dict[str, list[Any]]  # "recover" and "detect" in seconds, "phases" as in the run's event log


def measure(options: Options) -> Outcome:
    python, name = [sys.executable], "trireme_script.py"
    forms: dict[str, Callable[[], Found]] = {
        "Trireme": job([*python, name]),
        "Trireme, cold": job([*python, name, "cold"]),
        _STOPPED: job([*python, name], sent="SIGSTOP", faults=1),
        _RESIZES: job([*python, "resize_script.py"], read=resizes),
    }
    if Path(options.recover).exists():  # built only if libtorch was found
        forms["Trireme C++"] = job([options.recover])
    if options.peers:
        torchrun = [str(options.peers / "torchrun"), "--standalone", "--nproc-per-node=2", "--max-restarts=9"]
        forms[_RAY] = job([str(options.peers / "python"), "ray_script.py"])
        forms[_TORCHRUN] = job([*torchrun, "torchrun_script.py"], may_fail=True)
    return tabulate(alternate(forms, options.repeat))


def job(
    command: list[str],
    sent: str = "SIGKILL",
    faults: int = _FAULTS,
    read: Callable[[Path], Found] | None = None,
    may_fail: bool = False,
) -> Callable[[], Found]:
    def once() -> Found:
        with workplace() as (folder, env):
            env.update(BENCH_FAULTS=str(faults), BENCH_SIGNAL=sent, GLOO_SOCKET_IFNAME="lo")
            run_for_a_while(command, env, _PATIENCE_S * (faults + 1), may_fail)
            return (read or recoveries)(folder)

    return once


def run_for_a_while(command: list[str], env: dict[str, str], patience_s: float, may_fail: bool) -> None:
    log = Path(env["BENCH_FOLDER"], "output.txt")
    with log.open("w") as output:
        job = subprocess.Popen(command, env=env, cwd=_HERE, stdout=output, stderr=output, start_new_session=True)
        try:
            code: int | None = job.wait(patience_s)
        except subprocess.TimeoutExpired:
            code = None
            os.killpg(job.pid, signal.SIGTERM)
            job.wait(_PATIENCE_S)
    if code != 0 and not may_fail:
        sys.exit(f"{' '.join(command)} exited with code {code}:\n{log.read_text()[-4000:]}")


def recoveries(folder: Path) -> Found:
    ranks = [entries(folder / f"rank_{rank}.txt") for rank in range(2)]
    faults = stamps(folder / "rank_1.txt", "fault")
    found: Found = {"recover": [], "detect": [], "phases": phases(folder)}
    for fault in faults:
        # A restart may fail too: the first one that completes a step counts.
        steps = [next((step for enter, _, step in each if enter > fault and step), None) for each in ranks]
        found["recover"].append(max(steps) - fault if all(steps) else None)  # type: ignore[type-var, operator]
    decided = [event["time"] for event in events(folder) if event["event"] == "attempt_failed"]
    for fault, time, phase in zip(faults, decided, found["phases"], strict=False):
        found["detect"].append(time - phase["decide_s"] - fault)
    return found


def resizes(folder: Path) -> Found:
    found: Found = {}
    for ranks, name in _RESIZED.items():
        reached = [entries(folder / f"rank_{rank}.txt") for rank in range(int(ranks))]
        found[name] = []
        for asked in stamps(folder / "capacity.txt", f"enter_{ranks}"):
            steps = [next(step for enter, size, step in each if enter > asked and size == ranks) for each in reached]
            found[name].append(max(step for step in steps if step) - asked)
    return found


def stamps(path: Path, what: str) -> list[float]:
    lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
    return [float(time) for name, time in lines if name == what]


def entries(path: Path) -> list[tuple[float, str, float | None]]:
    """For each entry into the function: its time, the number of ranks, and the time of the first step."""
    made: list[tuple[float, str, float | None]] = []
    for line in path.read_text().splitlines() if path.exists() else []:
        name, time = line.split()
        if name.startswith("enter_"):
            made.append((float(time), name.removeprefix("enter_"), None))
        elif name == "step" and made[-1][2] is None:
            made[-1] = (*made[-1][:2], float(time))
    return made


def events(folder: Path) -> list[dict[str, Any]]:
    path = folder / "results" / "recover" / "events.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def phases(folder: Path) -> list[dict[str, Any]]:
    return [event for event in events(folder) if event["event"] == "restarted"]


def tabulate(measured: dict[str, list[Found]]) -> Outcome:
    peers = [_RAY] if _RAY in measured else []
    outcome = Outcome(
        "recover: from SIGKILL of one of 2 torch workers to the next step of both",
        ["", "seconds", *(f"{peer} is slower by" for peer in peers), "detect", *_PHASES, "goal"],
        measured={"seconds": measured},
    )
    blank = [""] * (len(_PHASES) + 1)
    ray = median(every(measured[_RAY], "recover")) if peers else 0.0
    for name, runs in measured.items():
        if name == _RESIZES:
            continue
        values = every(runs, "recover")
        known = [value for value in values if value is not None]
        seconds = f"{median(known):.3f}" if known else "never"
        if len(known) < len(values):  # the median of those that recovered
            seconds += f" ({len(known)} of {len(values)})"
        ratio = [times(ray, median(known)) if known and name not in (_RAY, _TORCHRUN, _STOPPED) else "" for _ in peers]
        outcome.rows.append([name, seconds, *ratio, *(parts(runs) or blank), aim_of(name)])
    for name in _RESIZED.values():
        seconds = f"{median(every(measured[_RESIZES], name)):.3f}"
        outcome.rows.append([name, seconds, *([""] * len(peers)), *blank, "1 s"])
    return outcome


def every(runs: list[Found], what: str) -> list[Any]:
    return [value for run in runs for value in run[what]]


def parts(runs: list[Found]) -> list[str]:
    known = every(runs, "phases")
    if not known:
        return []
    return [f"{median(every(runs, 'detect')):.3f}"] + [
        f"{median([phase[f'{name}_s'] for phase in known]):.3f}" for name in _PHASES
    ]


def aim_of(name: str) -> str:
    if name == _STOPPED:
        return "detect 2 s"
    return "" if name in (_RAY, _TORCHRUN) else "30x, detect 0.05 s"
