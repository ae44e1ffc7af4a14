"""Frameworks with two workers: Trireme, Ray Train and the framework's own launcher."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from measure import Options, Outcome, alternate, median, program, run, times, workplace
from rotation import Block, Form, compare, rotation, turned

_HERE = Path(__file__).parent
_PYTHON = "python"
# Of a measurement of steps; BENCH_ROUNDS is a factor. The caches are cold at the start of a block.
_ROUNDS = max(2, int(40 * float(os.environ.get("BENCH_ROUNDS", 1))))
_COUNTED, _COLD, _UNREQUESTED = 16, 4, 10


@dataclass(frozen=True)
class Framework:
    """The script of a framework is NAME_script.py.

    imported: what every process of the script imports; measured alone.
    launcher: a command in front of the script, for two processes; empty if the framework has none.
    goals: those that differ from the others'.
    """

    imported: str
    launcher: tuple[str, ...] = ("torchrun", "--standalone", "--nproc-per-node=2")
    goals: dict[tuple[str, str], float] = field(default_factory=dict)


_OURS, _RAY, _LAUNCHER, _IMPORT, _TORCH = "Trireme", "Ray Train", "own launcher", "import alone", "plain torch"
_AGAIN = f"{_LAUNCHER} again"
# They have no launcher that starts faster, and replace all processes after a kill.
_OTHERS = {("second", _RAY): 15, ("kill", _RAY): 8, ("kill", _TORCH): 0}


# Plain torch is first: after a kill, the others are compared with it.
_FRAMEWORKS = {
    "torch": Framework("torch"),
    "lightning": Framework("lightning.pytorch"),
    "transformers": Framework("transformers.trainer"),
    "accelerate": Framework("accelerate"),
    "deepspeed": Framework("deepspeed"),
    # JAX has no launcher; torchrun starts any script.
    "jax": Framework("jax, flax.linen, optax", goals=_OTHERS),
    "horovod": Framework("horovod.torch", ("horovodrun", "--gloo", "-np", "2", _PYTHON), goals=_OTHERS),
    "tensorflow": Framework("tensorflow", goals=_OTHERS),
    "keras": Framework("keras", goals=_OTHERS),
}
# For each measurement: the number of fits that it needs, and the least ratio to a peer that is the goal.
_FITS = {"start": 1, "memory": 1, "second": 2, "kill": 3}
_GOALS = {
    ("start", _RAY): 4, ("start", _LAUNCHER): 1.3, ("second", _RAY): 20, ("kill", _RAY): 20,
    ("kill", _TORCH): 0.5, ("memory", _LAUNCHER): 2,
}  # fmt: skip
_TITLES = {
    "start": "start of the script to the first step, s",
    "second": "second fit() to the first step, s",
    "kill": "SIGKILL of a rank to the next step of both, s",
    "memory": "memory of a worker (PSS), MB",
}
_VARIANTS = ("trireme", "import", "ray", "launcher")
_VARIABLES = {"GLOO_SOCKET_IFNAME": "lo", "HF_HUB_OFFLINE": "1", "DS_ACCELERATOR": "cpu", "PYTHONPATH": str(_HERE)}
_STEP, _MOST = "step", 1.02  # the most that a step may take, compared with the own launcher

Found = dict[str, float]


def measure(options: Options) -> Outcome:
    frameworks = options.chosen(_FRAMEWORKS)
    measurements = options.chosen([*_TITLES, _STEP])
    outcome = Outcome(
        "frameworks: two workers on this machine",
        ["", _OURS, *([_RAY, _LAUNCHER, _IMPORT, "ratios (goals)"] if options.peers else [_IMPORT])],
        measured={},
    )
    of_fits = [name for name in measurements if name != _STEP]
    for framework in frameworks:
        measured = outcome.measured[framework] = {}
        if of_fits:
            fits = max(_FITS[name] for name in of_fits)
            measured |= alternate(_forms(framework, fits, options), options.repeat)
        for name in of_fits:
            outcome.rows.append(_row(framework, name, outcome.measured, bool(options.peers)))
        if _STEP in measurements:
            blocks = _steps(framework, options)
            measured["steps"] = {form: list(map(asdict, made)) for form, made in blocks.items()}
            outcome.rows += _step_rows(framework, blocks, bool(options.peers))
    return outcome


def _forms(framework: str, fits: int, options: Options) -> dict[str, Callable[[], Found]]:
    commands, variants = _commands(framework, options), options.chosen(_VARIANTS)
    forms: dict[str, Callable[[], Found]] = {}
    if "trireme" in variants:
        forms[f"{_OURS}, {framework}"] = _job(commands[_OURS], fits)
    if "import" in variants:
        forms[f"{_IMPORT}, {framework}"] = _import_time(framework)
    if options.peers and "ray" in variants:
        command = [str(options.peers / "python"), f"{framework}_script.py", "ray"]
        forms[f"{_RAY}, {framework}"] = _job(command, fits)
    if "launcher" in variants and _LAUNCHER in commands:
        forms[f"{_LAUNCHER}, {framework}"] = _job(commands[_LAUNCHER], 1)
    return forms


def _commands(framework: str, options: Options) -> dict[str, list[str]]:
    script = f"{framework}_script.py"
    commands = {_OURS: [*program("trireme"), "run", script, "trireme"]}
    if options.peers and (launcher := _FRAMEWORKS[framework].launcher):
        programs = {launcher[0], _PYTHON}
        command = [str(options.peers / each) if each in programs else each for each in launcher]
        commands[_LAUNCHER] = [*command, script, "launcher"]
    return commands


def _job(command: list[str], fits: int) -> Callable[[], Found]:
    def once() -> Found:
        with workplace() as (folder, env):
            env.update(_VARIABLES, BENCH_FITS=str(fits))
            begin = time.time()
            run(command, env, _HERE)
            return _read(folder, begin)

    return once


def _steps(framework: str, options: Options) -> dict[str, list[Block]]:
    """Of jobs that run at the same time and take turns. The second one under the own launcher shows the noise."""
    commands = _commands(framework, options)
    forms: dict[str, Form] = {name: (command, _HERE) for name, command in commands.items()}
    if _LAUNCHER in forms:
        forms[_AGAIN] = forms[_LAUNCHER]
    blocks: dict[str, list[Block]] = {form: [] for form in forms}
    steps = _UNREQUESTED + _ROUNDS * (_COLD + _COUNTED)
    for number in range(options.repeat):
        print(f"  {number + 1}/{options.repeat} steps of {framework}", file=sys.stderr, flush=True)
        with workplace() as (folder, env):
            env.update(_VARIABLES, BENCH_FITS="1", BENCH_STEPS=str(steps))
            env.update(TRIREME_HEARTBEAT_TIMEOUT_S="60", TRIREME_LEASE_S="60")  # 6 ranks on 2 cores may have to wait
            with rotation(forms, env, folder) as active:
                for turn in range(_ROUNDS):
                    for form in turned(list(forms), turn):
                        made = active.block(form, 0, _COLD + _COUNTED)
                        made.seconds = made.seconds[_COLD:]
                        blocks[form].append(made)
    return blocks


def _import_time(framework: str) -> Callable[[], Found]:
    def once() -> Found:
        with workplace() as (_, env):
            begin = time.time()
            statement = f"import {_FRAMEWORKS[framework].imported}"
            run([sys.executable, "-c", statement], env | {"DS_ACCELERATOR": "cpu"}, _HERE)
            return {"start": time.time() - begin}

    return once


def _read(folder: Path, begin: float) -> Found:
    ranks = [_stamps(folder / f"fit_0_rank_{rank}.txt") for rank in range(2)]
    steps = [[at for what, at in rank if what == "step"] for rank in ranks]
    sizes = [int(what.removeprefix("pss_")) / 1024 for rank in ranks for what, _ in rank if "pss_" in what]
    found = {
        "start": max(each[0] for each in steps) - begin,
        "memory": median(sizes),
    }
    if (folder / "fit_1.txt").exists():
        ((_, asked),) = _stamps(folder / "fit_1.txt")
        found["second"] = max(_first(folder / f"fit_1_rank_{rank}.txt", "step", asked) for rank in range(2)) - asked
    if (folder / "fit_2.txt").exists():
        fault = _first(folder / "fit_2_rank_1.txt", "fault", 0)
        after = [folder / f"fit_2_rank_{rank}.txt" for rank in range(2)]
        entered = [_first(path, "enter", fault) for path in after]
        found["kill"] = max(_first(path, "step", at) for path, at in zip(after, entered, strict=True)) - fault
    return found


def _first(path: Path, kind: str, after: float) -> float:
    return next(at for what, at in _stamps(path) if what == kind and at > after)


def _stamps(path: Path) -> list[tuple[str, float]]:
    return [(what, float(at)) for what, at in (line.split() for line in path.read_text().splitlines())]


def _row(framework: str, name: str, measured: dict[str, dict[str, list[Found]]], with_peers: bool) -> list[str]:
    mine = measured[framework]
    values = {who: _median(mine.get(f"{who}, {framework}", ()), name) for who in (_OURS, _RAY, _LAUNCHER, _IMPORT)}
    shown = (_OURS, _RAY, _LAUNCHER, _IMPORT) if with_peers else (_OURS, _IMPORT)
    cells = ["" if values[who] is None else f"{values[who]:.2f}" for who in shown]
    if framework != "torch":
        values[_TORCH] = _median(measured.get("torch", {}).get(f"{_OURS}, torch", ()), name)
    goals = _GOALS | _FRAMEWORKS[framework].goals
    ratios = [
        f"{who} {times(value, ours)} ({goals[name, who]}x)"
        for who, value in values.items()
        if (ours := values[_OURS]) and value and goals.get((name, who))
    ]
    return [f"{framework}: {_TITLES[name]}", *cells, *([", ".join(ratios)] if with_peers else [])]


def _step_rows(framework: str, blocks: dict[str, list[Block]], with_peers: bool) -> list[list[str]]:
    title = f"{framework}: one step, ms"
    if _LAUNCHER not in blocks:
        values = [seconds for made in blocks[_OURS] for seconds in made.seconds]
        return [[title, f"{1000 * median(values):.3f}", *([""] * (4 if with_peers else 1))]]
    rows = []
    for form, goal in ((_OURS, f" (goal: at most {_MOST}x)"), (_AGAIN, "")):
        made, beside = blocks[form], blocks[_LAUNCHER]
        ours, theirs, ratio, quartiles = compare([each.seconds for each in made], [each.seconds for each in beside])
        cpu = median([mine.cpu / other.cpu for mine, other in zip(made, beside, strict=True)])
        name = title if form == _OURS else f"{title}, {form}"
        rows.append([name, ours, "", theirs, "", f"{ratio}, middle half {quartiles}, CPU {cpu:.3f}x{goal}"])
    return rows


def _median(found: Iterable[dict[str, Any]], name: str) -> float | None:
    values = [each[name] for each in found if name in each]
    return median(values) if values else None
