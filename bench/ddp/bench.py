"""The cost of a data parallel step under Trireme in Python and C++, compared with torchrun; and of the loaders."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from measure import Options, Outcome, median, run, workplace
from rotation import Block, Form, compare, expect_same_losses, rotation, turned

_HERE = Path(__file__).parent
_BATCH = 32
_SAMPLES = 1_000_000
_ROUNDS = float(os.environ.get("BENCH_ROUNDS", 1))  # factor for Network.rounds


@dataclass
class Network:
    widths: str
    warm: int  # uncounted steps at the start of a block, whose caches are cold
    steps: int
    rounds: int


# Short blocks, so that other load on the machine affects neighbouring blocks in the same way.
_NETWORKS = {
    "tiny": Network("64-64-10", 2, 20, 120),
    "medium": Network("512-1024-1024-10", 1, 4, 40),
    "large": Network("1024-4096-4096-10", 1, 1, 8),
}

_TORCHRUN, _AGAIN, _PYTHON, _CPP = "torchrun", "torchrun again", "Trireme", "Trireme C++"
# Measurement, baseline, goal.
_STEPS = (
    (_AGAIN, _TORCHRUN, "shows the noise"),
    (_PYTHON, _TORCHRUN, "no slower"),
    (_CPP, _PYTHON, "no slower"),
)
_LOADERS = (
    ("loader, 20 batches, CPU", "batches, prepared", "batches, plain", "no slower"),
    ("loader, start of an epoch", "begin, prepared", "begin, plain", "no slower"),
    ("loader, resume at 90 %", "resume, prepared", "resume, plain", "100 ms"),
    ("C++ loader, resume at 90 %", "resume, C++", "resume, libtorch", "100 ms"),
)

Blocks = dict[str, dict[str, list[Block]]]  # by network, variant and round


def measure(options: Options) -> Outcome:
    steps: Blocks = {network: {} for network in _NETWORKS}
    for number in range(options.repeat):
        print(f"  {number + 1}/{options.repeat} steps", file=sys.stderr, flush=True)
        rotate(forms(options.ddp), steps)
    print("  loaders", file=sys.stderr, flush=True)
    loaders: dict[str, list[float]] = script([sys.executable, "loader_script.py"], options.repeat)
    if Path(options.ddp).exists():
        loaders |= script([options.ddp, "resume"], options.repeat)
    return tabulate(steps, loaders)


def forms(program: str) -> dict[str, Form]:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    found: dict[str, Form] = {
        _TORCHRUN: ([*torchrun, "torchrun_script.py"], _HERE),
        _PYTHON: ([sys.executable, "trireme_script.py"], _HERE),
    }
    if Path(program).exists():  # built only if libtorch was found
        found[_CPP] = ([program, "steps"], _HERE)
    found[_AGAIN] = found[_TORCHRUN]
    return found


def rotate(jobs: dict[str, Form], steps: Blocks) -> None:
    with workplace() as (folder, env):
        widths = " ".join(network.widths for network in _NETWORKS.values())
        env.update(BENCH_NETWORKS=widths, BENCH_BATCH=str(_BATCH), GLOO_SOCKET_IFNAME="lo")
        env.update(TRIREME_HEARTBEAT_TIMEOUT_S="60", TRIREME_LEASE_S="60")  # 8 ranks on 2 cores may have to wait
        with rotation(jobs, env, folder) as active:
            for i, (name, network) in enumerate(_NETWORKS.items()):
                for form in jobs:  # DDP rebuilds its buckets after the first step
                    active.block(form, i, 3)
                for number in range(max(2, int(network.rounds * _ROUNDS))):
                    losses = {}
                    for form in turned(list(jobs), number):
                        made = active.block(form, i, network.warm + network.steps)
                        losses[form] = made.loss
                        made.seconds = made.seconds[network.warm :]
                        steps[name].setdefault(form, []).append(made)
                    expect_same_losses(name, losses)


def script(command: list[str], repeat: int) -> Any:
    with workplace() as (folder, env):
        env.update(BENCH_SAMPLES=str(_SAMPLES), BENCH_REPEAT=str(repeat))
        run(command, env, _HERE)
        return json.loads((folder / "times.json").read_text())


def tabulate(steps: Blocks, loaders: dict[str, list[float]]) -> Outcome:
    outcome = Outcome(
        f"ddp: one step, 2 workers, {_BATCH} samples each, 1 thread; loaders of {_SAMPLES:,} samples",
        ["", "ms", "compared with", "ms", "ratio", "middle half", "CPU ratio", "goal"],
        measured={
            "steps": {name: {form: list(map(asdict, made)) for form, made in of.items()} for name, of in steps.items()},
            "seconds_of_loaders": loaders,
        },
    )
    for name, network in _NETWORKS.items():
        for form, beside, aim in _STEPS:
            if form not in steps[name]:
                continue
            mine, theirs = steps[name][form], steps[name][beside]
            values = compare([block.seconds for block in mine], [block.seconds for block in theirs])
            cpu = median([a.cpu / b.cpu for a, b in zip(mine, theirs, strict=True)])
            outcome.rows.append(
                [f"{name} {network.widths}, {form}", values[0], beside, *values[1:], f"{cpu:.3f}x", aim]
            )
    for name, form, beside, aim in _LOADERS:
        if form in loaders:
            values = compare([[value] for value in loaders[form]], [[value] for value in loaders[beside]])
            outcome.rows.append([name, values[0], beside.split(", ")[1], *values[1:], "", aim])
    return outcome
