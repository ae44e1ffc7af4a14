"""Runs the benchmarks and prints a table for each: `python bench/run.py [launch report ...] [--peers]`.

Absolute times on a shared machine mean little. The ratios of measurements that alternate in one run matter.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import time
from pathlib import Path

from measure import ROOT, Options, table
from peers import peers_bin

_BENCHMARKS = ("launch", "report", "scale", "memory", "checkpoint", "ddp", "recover", "data")
_IN_OTHER_VENV = ("frameworks", "boosting", "clusters")  # runs with .venv-frameworks/bin/python


def main() -> None:
    # As in the Makefile: otherwise every process compiles what it imports.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    chosen, settings = parse_options()
    results = ROOT / "build" / "bench"
    results.mkdir(parents=True, exist_ok=True)
    for name in chosen:
        outcome = importlib.import_module(f"{name}.bench").measure(settings)
        print(f"\n{table(outcome)}\n", flush=True)
        record = {
            "benchmark": name,
            "time": time.time(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "load": os.getloadavg(),
            "repeat": settings.repeat,
            "measured": outcome.measured,
        }
        (results / f"{name}.json").write_text(json.dumps(record, indent=2) + "\n")
    print(f"All measurements: {results}")


def parse_options() -> tuple[list[str], Options]:
    parser = argparse.ArgumentParser(description="Measure Trireme, with --peers also Ray Train and torchrun.")
    parser.add_argument(
        "benchmarks",
        nargs="*",
        metavar="NAME",
        help=f"{', '.join(_BENCHMARKS)} (default: all of these), or {', '.join(_IN_OTHER_VENV)}, with "
        ".venv-frameworks/bin/python",
    )
    parser.add_argument("--peers", action="store_true", help="also measure Ray Train and torchrun")
    parser.add_argument("--peers-venv", type=Path, default=ROOT / ".venv-peers", help="created if it does not exist")
    parser.add_argument("--repeat", type=int, default=3, help="number of measurements; the table shows medians")
    programs = ROOT / "build" / "release" / "bench" / "cpp"
    parser.add_argument("--scale-program", default=str(programs / "bench_scale"))
    parser.add_argument("--ddp-program", default=str(programs / "bench_ddp"), help="skipped if not found")
    parser.add_argument("--recover-program", default=str(programs / "bench_recover"), help="skipped if not found")
    parser.add_argument("--boosting-program", default=str(programs / "bench_boosting"), help="skipped if not found")
    parser.add_argument(
        "--only",
        default="",
        help="of frameworks and boosting: names of libraries, variants and measurements, e.g. lightning,ray,start",
    )
    given = parser.parse_args()
    if unknown := set(given.benchmarks) - set(_BENCHMARKS) - set(_IN_OTHER_VENV):
        parser.error(f"unknown benchmark: {', '.join(sorted(unknown))}; use {', '.join(_BENCHMARKS)}")
    chosen = given.benchmarks or list(_BENCHMARKS)
    peers = peers_bin(given.peers_venv, frameworks=bool(set(chosen) & set(_IN_OTHER_VENV))) if given.peers else None
    selected = [name for name in given.only.split(",") if name]
    programs_given = (given.scale_program, given.ddp_program, given.recover_program)
    options = Options(given.repeat, peers, *programs_given, selected, given.boosting_program)
    return chosen, options


if __name__ == "__main__":
    main()
