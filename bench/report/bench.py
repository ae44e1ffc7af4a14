"""Metrics-only report() calls per second of each of 2 workers."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

from measure import Options, Outcome, alternate, median, run, times, workplace

_HERE = Path(__file__).parent


def measure(options: Options) -> Outcome:
    forms = {"Trireme": rate([sys.executable, "trireme_script.py"])}
    if options.peers:
        forms["Ray Train"] = rate([str(options.peers / "python"), "ray_script.py"])
    measured = alternate(forms, options.repeat)
    rates = {name: median(values) for name, values in measured.items()}
    outcome = Outcome(
        "report: metrics-only report() with 2 workers",
        ["", "calls/s per worker"] + (["Ray Train is slower by"] if options.peers else []),
        measured={"calls_per_second": measured},
    )
    for name, value in rates.items():
        shown = f"{value:,.0f}" if value >= 100 else f"{value:.2f}"
        ratio = [times(value, rates["Ray Train"]) if name == "Trireme" else ""] if options.peers else []
        outcome.rows.append([name, shown, *ratio])
    return outcome


def rate(command: list[str]) -> Callable[[], float]:
    def once() -> float:
        with workplace() as (folder, env):
            run(command, env, _HERE)
            return min(json.loads(path.read_text()) for path in folder.glob("rank_?"))  # the slower worker's

    return once
