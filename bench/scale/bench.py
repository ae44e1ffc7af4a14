"""The cost of a report, a start and a restart with up to 10,000 workers; the program is bench/cpp/scale.cpp."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from measure import Options, Outcome, alternate, median, run

_SIZES = (100, 1_000, 10_000)
_AGENTS = ((13, 8), (125, 8), (1_250, 8))  # and the workers of each

Costs = dict[str, dict[str, float]]


def measure(options: Options) -> Outcome:
    def of(*arguments: object) -> Costs:
        lines = run([options.scale, *map(str, arguments)], dict(os.environ), Path.cwd()).splitlines()
        return {str(line["workers"]): line for line in map(json.loads, lines)}

    forms: dict[str, Any] = {
        "controller": lambda: of(*_SIZES),
        "cluster": lambda: of("--cluster", *(number for pair in _AGENTS for number in pair)),
    }
    measured = alternate(forms, options.repeat)
    outcome = Outcome(
        "scale: the controller with simulated workers on real sockets, one report in flight each",
        ["workers", "CPU per report", "reports/s on one core", "memory per worker", "CPU to start", "to restart"],
        measured={"runs": measured["controller"], "clusters": measured["cluster"]},
    )
    for size in _SIZES:
        cost = _of(measured["controller"], size, "cpu_us_per_report")
        memory = _of(measured["controller"], size, "bytes_per_worker")
        outcome.rows.append([f"{size:,}", *_rate(cost), f"{memory / 1024:.1f} KB", "", ""])
    for agents, each in _AGENTS:
        cost, alone, start, restart = (
            _of(measured["cluster"], agents * each, what)
            for what in ("cpu_us_per_report", "cpu_us_per_report_alone", "start_cpu_s", "restart_cpu_s")
        )
        name = f"{agents * each:,} on {agents:,} nodes"
        outcome.rows.append([name, *_rate(cost), "", f"{start:.2f} s", f"{restart:.2f} s"])
        outcome.rows.append([f"{name}, each alone", *_rate(alone), "", "", ""])
    outcome.rows.append(["goal for 10,000 on 1,250 nodes", "12 us", "", "", "2 s", "0.5 s"])
    return outcome


def _of(runs: list[Costs], workers: int, what: str) -> float:
    return median([run[str(workers)][what] for run in runs])


def _rate(cost: float) -> list[str]:
    return [f"{cost:.1f} us", f"{1e6 / cost:,.0f}"]
