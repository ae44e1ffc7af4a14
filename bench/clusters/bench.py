"""Starts and failures on real clusters of three machines, which are network and pid namespaces: Ray and Slurm."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from measure import ROOT, Options, Outcome, alternate, median, program, times, workplace

sys.path.insert(0, str(ROOT / "tests" / "engines"))
from machines import why_not_permitted
from ray_cluster import RayCluster
from slurm_cluster import SlurmCluster

_HERE = Path(__file__).parent
_COLUMNS = {"start": "script start to last rank", "second": "second fit()", "recover": "SIGKILL to next step"}
_GOALS = {"start": 5, "second": 20, "recover": 20}
Seconds = dict[str, float]


def measure(options: Options) -> Outcome:
    if why := why_not_permitted():
        sys.exit(f"this benchmark needs network namespaces: {why}")
    # The processes on the nodes inherit this.
    os.environ["GLOO_SOCKET_IFNAME"] = "eth0"
    measured = {**_on_ray(options), **_on_slurm(options)}
    outcome = Outcome(
        "clusters: 2 torch workers on 2 nodes, a process group between them",
        ["", *_COLUMNS.values()],
        measured={"seconds": measured},
    )
    found = {name: {what: median([r[what] for r in runs]) for what in runs[0]} for name, runs in measured.items()}
    for name, seconds in found.items():
        outcome.rows.append([name, *(f"{seconds[what]:.2f} s" if what in seconds else "" for what in _COLUMNS)])
    if "Ray Train" in found:
        ours, theirs = found["Trireme on Ray"], found["Ray Train"]
        outcome.rows.append(["Ray Train is slower by", *(times(theirs[what], ours[what]) for what in _COLUMNS)])
        outcome.rows.append(["goal", *(f"{goal}x" for goal in _GOALS.values())])
    added = found["Trireme on Slurm"]["start"] - found["srun"]["start"]
    outcome.rows.append(["Trireme adds to srun (goal: 1 s)", f"{added:.2f} s", "", ""])
    return outcome


def _on_ray(options: Options) -> dict[str, list[Seconds]]:
    cluster = RayCluster(nodes=2, cpus=2, gpus=0, head_cpus=0)
    try:
        forms = {
            "Trireme on Ray": _script(
                cluster.command,
                cluster.environment,
                [*program("trireme"), "run", "--engine", f"ray:{cluster.address}", str(_HERE / "trireme_script.py")],
            )
        }
        if options.peers:
            python = [str(options.peers / "python"), str(_HERE / "ray_script.py")]
            forms["Ray Train"] = _script(
                cluster.command, {**cluster.environment, "RAY_ADDRESS": cluster.address}, python
            )
        return alternate(forms, options.repeat)
    finally:
        cluster.close()


def _on_slurm(options: Options) -> dict[str, list[Seconds]]:
    with tempfile.TemporaryDirectory(prefix="trireme-bench-") as folder:
        cluster = SlurmCluster(Path(folder))
        try:
            job = ["--nodes=2", "--ntasks=2", "--ntasks-per-node=1", "--cpus-per-task=4"]
            master = cluster.machine("n1")
            assert master
            rendezvous = {**cluster.environment, "MASTER_ADDR": master.address, "MASTER_PORT": "29500"}
            ours = ["salloc", "--quiet", "--no-kill", *job, *program("trireme"), "run", "--engine", "slurm"]
            forms = {
                "srun": _script(
                    cluster.command, rendezvous, ["srun", *job, sys.executable, str(_HERE / "srun_script.py")]
                ),
                "Trireme on Slurm": _script(
                    cluster.command, cluster.environment, [*ours, str(_HERE / "trireme_script.py")]
                ),
            }
            return alternate(forms, options.repeat)
        finally:
            cluster.close()


def _script(command: Callable[[list[str]], list[str]], base: dict[str, str], argv: list[str]) -> Callable[[], Seconds]:
    def once() -> Seconds:
        with workplace() as (folder, env):
            mine = {name: value for name, value in env.items() if name.startswith(("TRIREME_", "BENCH_", "OMP_"))}
            began = time.time()
            done = subprocess.run(
                command(argv),
                env={**base, **mine, "RAY_TRAIN_V2_ENABLED": "1"},
                cwd=_HERE,
                capture_output=True,
                text=True,
                timeout=300,
            )
            if done.returncode != 0:
                sys.exit(f"{' '.join(argv)} exited with code {done.returncode}:\n{(done.stdout + done.stderr)[-4000:]}")
            found = {"start": _last(folder, "fit_0_rank_*") - began}
            if (folder / "fault").exists():
                found["second"] = _last(folder, "fit_1_rank_*") - _last(folder, "fit_1_begin")
                found["recover"] = _last(folder, "after_rank_*") - _last(folder, "fault")
            return found

    return once


def _last(folder: Path, pattern: str) -> float:
    return max(float(path.read_text()) for path in folder.glob(pattern))
