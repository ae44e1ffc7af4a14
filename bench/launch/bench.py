"""The time from the start of a script until the last of 4 torch workers has passed a barrier."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from measure import Options, Outcome, alternate, median, program, run, times, workplace

_HERE = Path(__file__).parent
Seconds = list[float]  # of each fit() of one script; the first is measured from the start of the process


def measure(options: Options) -> Outcome:
    forms = {
        "python script.py": launch([sys.executable, "trireme_script.py"], 2),
        "python script.py, torch first": launch([sys.executable, "trireme_script.py", "--torch-first"], 2),
        "trireme run script.py": launch([*program("trireme"), "run", "trireme_script.py"], 2),
        "trireme run script.py, torch first": launch(
            [*program("trireme"), "run", "trireme_script.py", "--torch-first"], 2
        ),
        # Ray Train's script, unchanged.
        "trireme run --ray-compat": launch([*program("trireme"), "run", "--ray-compat", "ray_script.py"], 2),
    }
    if options.peers:
        forms["Ray Train"] = launch([str(options.peers / "python"), "ray_script.py"], 2)
        forms["torchrun"] = launch([str(options.peers / "torchrun"), "--nproc-per-node=4", "torchrun_script.py"], 1)
    measured = alternate(forms, options.repeat)
    return tabulate(measured)


def tabulate(measured: dict[str, list[Seconds]]) -> Outcome:
    first = {name: median([fits[0] for fits in runs]) for name, runs in measured.items()}
    second = {name: median([fits[1] for fits in runs]) for name, runs in measured.items() if len(runs[0]) > 1}
    peers = [name for name in ("Ray Train", "torchrun") if name in measured]
    outcome = Outcome(
        "launch: script start until the last rank has passed a barrier, 4 torch workers",
        ["", "first fit", *(f"{peer} is slower by" for peer in peers), "second fit"]
        + (["Ray Train is slower by"] if "Ray Train" in peers else []),
        measured={"seconds": measured},
    )
    for name in measured:
        ratios = [times(first[peer], first[name]) if name not in peers else "" for peer in peers]
        row = [name, f"{first[name]:.2f} s", *ratios, f"{second[name]:.3f} s" if name in second else ""]
        if "Ray Train" in peers:
            row.append(times(second["Ray Train"], second[name]) if name in second and name not in peers else "")
        outcome.rows.append(row)
    return outcome


def launch(command: list[str], fits: int) -> Callable[[], Seconds]:
    def once() -> Seconds:
        with workplace() as (folder, env):
            began = time.time()
            run(command, {**env, "BENCH_FITS": str(fits)}, _HERE)
            return [
                newest(folder, f"fit_{fit}_rank_*") - (began if fit == 0 else newest(folder, f"fit_{fit}_begin"))
                for fit in range(fits)
            ]

    return once


def newest(folder: Path, pattern: str) -> float:
    return max(float(path.read_text()) for path in folder.glob(pattern))
