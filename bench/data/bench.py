"""Datasets to tensors: a Trireme worker compared with a pyarrow scan, torch's DataLoader and Ray Data."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from data.inputs import make_inputs
from measure import Options, Outcome, alternate, median, run, times, workplace
from memory.bench import descendants, pss_kb

_HERE = Path(__file__).parent
_PATIENCE_S = 600
_SAMPLE_S = 0.1

_OURS, _BARE, _LOADER, _RAY, _LOOP = "Trireme", "pyarrow scan", "DataLoader", "Ray Data", "Python loop"
_FORM_ARGUMENTS = {_BARE: "bare", _LOADER: "loader", _LOOP: "loop", "row group": "row group"}
_TASKS = {
    "numbers": (_OURS, _BARE, _LOADER, _RAY),
    "shuffled": (_OURS, _LOADER, _RAY),
    "images": (_OURS, _LOADER),
    "text": (_OURS, _LOOP, _RAY),
    "text as numpy": (_OURS, _LOOP, _RAY),
}
_MEMORY = {"numbers": (_OURS, _LOADER, _RAY), "shuffled": (_OURS, _LOADER, _RAY)}
_AIMS = {
    ("numbers", _BARE): "0.77x",
    ("numbers", _RAY): "10x, first batch 20x",
    ("shuffled", _LOADER): "1x",
    ("shuffled", _RAY): "5x",
    ("images", _LOADER): "1x",
}

Found = dict[str, Any]
Measured = dict[str, dict[str, list[Found]]]  # by task and variant


def measure(options: Options) -> Outcome:
    with tempfile.TemporaryDirectory(prefix="trireme-bench-data-") as name:
        inputs = Path(name)
        print("  creating the files", file=sys.stderr, flush=True)
        make_inputs(inputs)

        def forms_of(task: str, forms: tuple[str, ...], measured: Callable[..., Found]) -> dict[str, list[Found]]:
            chosen = [form for form in forms if form != _RAY or options.peers]
            print(f" {task}", file=sys.stderr, flush=True)
            jobs = {form: job(command_of(form, task, inputs, options), measured) for form in chosen}
            return alternate(jobs, options.repeat)

        speed = {task: forms_of(task, forms, timed) for task, forms in _TASKS.items()}
        speed["resume"] = forms_of("resume", (_OURS, "row group"), timed)
        speed["budget"] = forms_of("budget", (_OURS,), timed)
        memory = {task: forms_of(task, forms, sampled) for task, forms in _MEMORY.items()}
    return tabulate(speed, memory)


def command_of(form: str, task: str, inputs: Path, options: Options) -> list[str]:
    if form == _OURS:
        return [sys.executable, "trireme_script.py", task, str(inputs)]
    if form == _RAY:
        return [str(options.peers / "python"), "ray_script.py", task, str(inputs)]  # type: ignore[operator]
    return [sys.executable, "plain_script.py", _FORM_ARGUMENTS[form], task, str(inputs)]


def job(command: list[str], measured: Callable[..., Found]) -> Callable[[], Found]:
    def once() -> Found:
        with workplace() as (folder, env):
            return measured(command, env, folder)

    return once


def timed(command: list[str], env: dict[str, str], folder: Path) -> Found:
    run(command, env, _HERE)
    found: Found = json.loads((folder / "found.json").read_text())
    return found


def sampled(command: list[str], env: dict[str, str], folder: Path) -> Found:
    """The peak memory of all processes during one epoch; its times are not used because sampling disturbs them."""
    with open(folder / "output", "w+") as output:
        job = subprocess.Popen(
            command, env=env | {"BENCH_EPOCHS": "1"}, cwd=_HERE, stdout=output, stderr=subprocess.STDOUT
        )
        most, deadline = 0.0, time.monotonic() + _PATIENCE_S
        try:
            while job.poll() is None and time.monotonic() < deadline:
                most = max(most, sum(map(pss_kb, descendants(job.pid))) / 1024)
                time.sleep(_SAMPLE_S)
        finally:
            job.terminate()
            job.wait()
        if not (folder / "found.json").exists():
            output.seek(0)
            sys.exit(f"{' '.join(command)} wrote no result:\n{output.read()[-4000:]}")
    return {"pss_mb": most}


def tabulate(speed: Measured, memory: Measured) -> Outcome:
    outcome = Outcome(
        "data: tensors in one worker, second epoch; first batch of the first and of the second epoch",
        ["", "rows/s", "Trireme: rows/s", "CPU s", "first batch s", "Trireme: faster", "PSS", "Trireme: less", "goal"],
        measured={"speed": speed, "memory": memory},
    )
    for task in _TASKS:
        forms = speed[task]
        for form in forms:
            outcome.rows.append(row_of(task, form, forms, memory.get(task, {})))
    ours, decode = (median(every(speed["resume"][form], "resume_s")) for form in (_OURS, "row group"))
    blank = [""] * 7
    outcome.rows.append(
        ["resume at 90 %", f"{ours * 1e3:.0f} ms", *blank[1:], f"100 ms and a row group's {decode * 1e3:.0f} ms"]
    )
    grown = [run["grown_mb"] / run["budget_mb"] for run in speed["budget"][_OURS]]
    outcome.rows.append(["memory grown / budget", f"{median(grown):.2f}", *blank[1:], "1, for 10 times as much data"])
    return outcome


def row_of(task: str, form: str, forms: dict[str, list[Found]], memory: dict[str, list[Found]]) -> list[str]:
    def rate(name: str) -> float:
        return median([run["rows"] / run["epoch_s"][-1] for run in forms[name]])

    def first(name: str, epoch: int) -> float:
        return median([run["first_s"][epoch] for run in forms[name]])

    def peak(name: str) -> float:
        return median([run["pss_mb"] for run in memory[name]])

    other = form != _OURS
    return [
        f"{task}, {form}",
        f"{rate(form):,.0f}",
        times_finely(rate(_OURS), rate(form)) if other else "",
        f"{median([run['cpu_s'][-1] for run in forms[form]]):.2f}" if form != _RAY else "",
        f"{first(form, 0):.3f} {first(form, -1):.3f}",
        f"{times(first(form, 0), first(_OURS, 0))} {times(first(form, -1), first(_OURS, -1))}" if other else "",
        f"{peak(form):,.0f} MB" if form in memory else "",
        times(peak(form), peak(_OURS)) if other and form in memory else "",
        _AIMS.get((task, form), ""),
    ]


def times_finely(more: float, less: float) -> str:
    """Near 1 the second digit matters."""
    ratio = more / less
    return f"{ratio:.2f}x" if ratio < 10 else times(more, less)


def every(runs: list[Found], what: str) -> list[Any]:
    return [value for run in runs for value in run[what]]
