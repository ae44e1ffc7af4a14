"""The controller's cost of one report with 100, 1,000 and 10,000 workers; the program is bench/cpp/scale.cpp."""

from __future__ import annotations

import json
import os
from pathlib import Path

from measure import Options, Outcome, alternate, median, run

_SIZES = (100, 1_000, 10_000)


def measure(options: Options) -> Outcome:
    def once() -> dict[str, dict[str, float]]:
        lines = run([options.scale, *map(str, _SIZES)], dict(os.environ), Path.cwd()).splitlines()
        return {str(line["workers"]): line for line in map(json.loads, lines)}

    measured = alternate({"controller": once}, options.repeat)["controller"]
    outcome = Outcome(
        "scale: the controller with simulated workers on real sockets, one report in flight each",
        ["workers", "CPU per report", "reports/s on one core", "memory per worker"],
        measured={"runs": measured},
    )
    for size in _SIZES:
        cost = median([run[str(size)]["cpu_us_per_report"] for run in measured])
        memory = median([run[str(size)]["bytes_per_worker"] for run in measured])
        outcome.rows.append([f"{size:,}", f"{cost:.1f} us", f"{1e6 / cost:,.0f}", f"{memory / 1024:.1f} KB"])
    return outcome
