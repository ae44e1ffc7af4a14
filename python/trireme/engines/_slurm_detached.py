"""Detached scripts on Slurm: each is a job of one task, the driver, which submits a job for each gang of workers."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from typing import Any

from trireme.engines._slurm_query import environment, run
from trireme.engines.adapter import Refused

_JOB_NAME = "trireme-driver"
# Those of the engine's options that decide whether a job is accepted at all. The driver needs no GPUs.
_OF_THE_DRIVER = ("account", "partition", "qos", "reservation")
# Slurm starts it again on another node if its node fails.
_SCRIPT = """#!/bin/sh
export TRIREME_SLURM_DRIVER=$SLURM_JOB_ID
exec {command}
"""


class SlurmDetached:
    def __init__(self, options: dict[str, Any]) -> None:
        if argument := options.pop("argument", None):
            options.setdefault("partition", argument)
        self._options = options

    def start(self, words: list[str], variables: dict[str, str]) -> str:
        if job := os.environ.get("SLURM_JOB_ID"):
            raise Refused(f"--detach: this process runs inside job {job}, which does not need a terminal; leave it out")
        argv = [
            "sbatch",
            "--parsable",
            f"--job-name={_JOB_NAME}",
            "--ntasks=1",
            "--requeue",
            "--open-mode=append",
            "--output=trireme-%j.log",
            *(f"--{name}={self._options[name]}" for name in _OF_THE_DRIVER if self._options.get(name)),
            *map(str, self._options.get("driver_args", [])),
        ]
        env = {
            **environment(),
            **variables,
            "TRIREME_RUN_ENGINE": "slurm",
            "TRIREME_RUN_ENGINE_OPTIONS": json.dumps(self._options),
        }
        script = _SCRIPT.format(command=shlex.join([self._options.get("python") or sys.executable, *words]))
        done = subprocess.run(argv, env=env, input=script, capture_output=True, text=True)
        if done.returncode != 0:
            raise Refused(done.stderr.strip() or f"sbatch: exit code {done.returncode}")
        return done.stdout.strip().partition(";")[0]

    def jobs(self) -> dict[str, str]:
        jobs = {}
        listed = run("squeue", "--me", "--noheader", f"--name={_JOB_NAME}", "--format=%i|%T|%B|%V")
        for line in listed.splitlines():
            job, state, host, submitted = line.split("|")
            jobs[job] = f"{state} on {host}, submitted {submitted}"
        return jobs

    def command(self, job: str, words: list[str]) -> int:
        host = run("squeue", "--noheader", f"--jobs={job}", "--states=RUNNING", "--format=%B").strip()
        if not host:
            raise Refused(f"job {job} does not run: see squeue")
        argv = [
            "srun",
            f"--jobid={job}",
            "--nodes=1",
            "--ntasks=1",
            f"--nodelist={host}",
            "--overlap",
            "--cpu-bind=none",
            "--mpi=none",
            "--quiet",
            "--unbuffered",
            *(sys.executable, "-m", "trireme._cli", *words),
        ]
        return subprocess.run(argv, env=environment()).returncode

    def interrupt(self, job: str, *, hard: bool) -> str:
        if not hard:
            run("scancel", "--batch", "--signal=INT", job)
            return f"job {job} was interrupted"
        run("scancel", "--quiet", job)
        run("scancel", "--quiet", f"--name={jobs_of_driver(job)}")
        return f"job {job} was cancelled, with its workers"


def jobs_of_driver(job: str) -> str:
    """The name of the jobs that a detached driver submits."""
    return f"trireme-{job}"
