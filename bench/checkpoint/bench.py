"""The cost of a checkpoint of 1 GiB of state, compared with the minimum possible, and of 1,000 tiny ones."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from measure import Options, Outcome, median, run, workplace

_HERE = Path(__file__).parent
_BYTES = int(os.environ.get("BENCH_BYTES", 1 << 30))

# Measurement, baseline, goal.
_ROWS = (
    ("report ASYNC, stall", "memcpy", "at most 1.5x"),
    ("torch.distributed.checkpoint async, stall", "memcpy", ""),
    ("report ASYNC, durable", "dd conv=fsync", "at most 1.2x"),
    ("save_state", "dd conv=fsync", "at most 1.2x"),
    ("torch.save + fsync", "dd conv=fsync", ""),
    ("torch.distributed.checkpoint", "dd conv=fsync", ""),
    ("torch.distributed.checkpoint async, durable", "dd conv=fsync", ""),
    ("Ray Train report", "dd conv=fsync", ""),
    ("load_state", "read()", "at most 1.2x"),
    ("load_state mmap=False", "read()", "at most 1.2x"),
    ("torch.load", "read()", ""),
)


def measure(options: Options) -> Outcome:
    times: dict[str, list[float]] = script([sys.executable, "trireme_script.py"], options.repeat)
    if options.peers:
        times |= script([str(options.peers / "python"), "ray_script.py"], options.repeat)
    hundreds: list[float] = script([sys.executable, "commits_script.py"], options.repeat)
    outcome = Outcome(
        f"checkpoint: {_BYTES / 2**30:g} GiB of state in 64 tensors, 1 worker",
        ["", "seconds", "compared with", "seconds", "ratio", "goal"],
        measured={"seconds": times, "seconds_of_each_hundred_commits": hundreds},
    )
    for name, yardstick, aim in _ROWS:
        if name in times:
            value, least = median(times[name]), median(times[yardstick])
            outcome.rows.append([name, f"{value:.3f}", yardstick, f"{least:.3f}", f"{value / least:.2f}x", aim])
    first, last = hundreds[1], hundreds[-1]  # the first hundred starts cold
    outcome.rows.append(
        [
            "commit, of 901-1,000",
            f"{last / 100:.4f}",
            "of 101-200",
            f"{first / 100:.4f}",
            f"{last / first:.2f}x",
            "flat",
        ]
    )
    return outcome


def script(command: list[str], repeat: int) -> Any:
    with workplace() as (folder, env):
        env.update(BENCH_BYTES=str(_BYTES), BENCH_REPEAT=str(repeat))
        run(command, env, _HERE)
        return json.loads((folder / "times.json").read_text())
