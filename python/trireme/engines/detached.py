"""`python -m trireme.engines.detached`: scripts that outlive the command that started them, and commands for them.

`trireme run --detach` becomes `start WORDS`, where `python WORDS` is the script. `trireme show --engine ...` and its
relatives become `command [--job JOB] WORDS`, where `trireme WORDS` is to be executed where the script runs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from typing import Any, Protocol

from trireme.engines.adapter import Refused

# Of this machine and of this command, not of the script.
_NOT_FORWARDED = ("TRIREME_STATE_DIR", "TRIREME_PYTHON", "TRIREME_RUN_ENGINE", "TRIREME_RUN_ENGINE_OPTIONS")


class Detached(Protocol):
    """Scripts on an engine."""

    def start(self, words: list[str], variables: dict[str, str]) -> str:
        """Starts `python WORDS` with these variables; returns the id of the job that runs it."""

    def jobs(self) -> dict[str, str]:
        """What is known of each job, by id."""

    def command(self, job: str, words: list[str]) -> int:
        """Runs `trireme WORDS` beside the job's script, with its output here. Returns the exit code."""

    def interrupt(self, job: str, *, hard: bool) -> str:
        """As Ctrl-C in the script's terminal, or SIGKILL. Returns a line for the user."""


def _chosen_engine() -> str:
    return os.environ.get("TRIREME_RUN_ENGINE") or os.environ.get("TRIREME_ENGINE") or "local"


def _connect() -> Detached | None:
    """None: the driver of this engine is on the machine that starts the script."""
    engine, colon, argument = _chosen_engine().partition(":")
    by_command = "TRIREME_RUN_ENGINE" in os.environ
    text = os.environ.get("TRIREME_RUN_ENGINE_OPTIONS" if by_command else "TRIREME_ENGINE_OPTIONS")
    options: dict[str, Any] = json.loads(text) if text else {}
    if colon:
        options["argument"] = argument
    if engine == "ray":
        from trireme.engines._ray_detached import RayDetached

        return RayDetached(options)
    if engine == "slurm":
        from trireme.engines._slurm_detached import SlurmDetached

        return SlurmDetached(options)
    return None


def _start_here(words: list[str]) -> None:
    path = os.path.abspath(time.strftime("trireme-%Y%m%d-%H%M%S.log"))
    with open(path, "ab") as output:
        driver = subprocess.Popen(
            [sys.executable, *words],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # it must not get the signals of this terminal
        )
    print(f"detached: pid {driver.pid} on this machine, output in {path}")
    print("trireme runs, show, logs and stop work as usual")


def start(words: list[str]) -> None:
    detached = _connect()
    if detached is None:
        return _start_here(words)
    variables = {
        name: value for name, value in os.environ.items() if name.startswith("TRIREME_") and name not in _NOT_FORWARDED
    }
    job = detached.start(words, variables)
    print(f"detached: job {job}")
    print(f"trireme show --engine {_chosen_engine()} --job {job}      also: runs, logs, checkpoints, stack, stop")


def command(job: str | None, words: list[str]) -> int:
    engine = _chosen_engine()
    detached = _connect()
    if detached is None:
        raise Refused(
            f"the driver of engine {engine} is on the machine that started the script: call this command there, "
            "without --engine"
        )
    jobs = detached.jobs()
    if job is None:
        if len(jobs) != 1:
            listed = "".join(f"\n  {each}: {state}" for each, state in jobs.items())
            raise Refused(f"select a detached job with --job:{listed}" if jobs else f"no detached job on {engine}")
        (job,) = jobs
    elif job not in jobs:
        raise Refused(
            f"job {job}: there is no such detached job on {engine}; the jobs are: {', '.join(jobs) or 'none'}"
        )
    if words[0] == "stop" and all(word.startswith("-") for word in words[1:]):
        print(detached.interrupt(job, hard="--hard" in words))
        return 0
    return detached.command(job, words)


def main() -> None:
    action, *words = sys.argv[1:]
    try:
        if action == "start":
            start(words)
        else:
            job = None
            if words[0] == "--job":
                _, job, *words = words
            sys.exit(command(job, words))
    except Refused as refused:
        sys.exit(f"trireme: {refused}")


if __name__ == "__main__":
    main()
