"""Jobs that all run at the same time, of which one at a time runs steps."""

from __future__ import annotations

import math
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from measure import median

_RANKS = 2
_PATIENCE_S = 120
Form = tuple[list[str], Path]  # a command and its working directory


@dataclass
class Block:
    """Consecutive steps of one variant."""

    loss: float  # of the last step
    cpu: float  # CPU seconds per step, over all ranks
    seconds: list[float]  # of each step, on rank 0


class Rotation:
    """Connections to the ranks of each job, which request N steps of one network."""

    def __init__(self, jobs: dict[str, subprocess.Popen[bytes]], server: socket.socket, logs: Path) -> None:
        self._jobs = jobs
        self._logs = logs
        self._ranks: dict[str, dict[int, socket.socket]] = {name: {} for name in jobs}
        server.settimeout(0.2)
        deadline = time.monotonic() + _PATIENCE_S
        while any(len(ranks) < _RANKS for ranks in self._ranks.values()):
            self._check(deadline)
            try:
                connection = server.accept()[0]
            except TimeoutError:
                continue
            connection.settimeout(_PATIENCE_S)
            name, rank = self._line(connection).rsplit(" ", 1)
            self._ranks[name][int(rank)] = connection

    def block(self, name: str, network: int, steps: int) -> Block:
        for connection in self._ranks[name].values():
            connection.sendall(f"{network} {steps}\n".encode())
        answers = [[float(word) for word in self._line(self._ranks[name][rank]).split()] for rank in range(_RANKS)]
        losses, worked = ([answer[i] for answer in answers] for i in (0, 1))
        return Block(sum(losses) / _RANKS, sum(worked) / steps / 1e9, [taken / 1e9 for taken in answers[0][2:]])

    def end(self) -> None:
        """Closes the connections, which ends the ranks, and waits for the jobs."""
        for ranks in self._ranks.values():
            for connection in ranks.values():
                connection.close()
        for name, job in self._jobs.items():
            if job.wait(_PATIENCE_S) != 0:
                self._give_up(name, f"ended with {job.returncode}")

    def _line(self, connection: socket.socket) -> str:
        received = b""
        while not received.endswith(b"\n"):
            more = connection.recv(1 << 16)
            if not more:
                self._give_up(", ".join(self._jobs), "one of them exited too early")
            received += more
        return received.decode().strip()

    def _check(self, deadline: float) -> None:
        for name, job in self._jobs.items():
            if job.poll() is not None:
                self._give_up(name, f"ended with {job.returncode}")
        if time.monotonic() > deadline:
            self._give_up(", ".join(self._jobs), f"not all ranks connected within {_PATIENCE_S} s")

    def _give_up(self, name: str, why: str) -> None:
        logs = "".join(f"\n--- {path.name}\n{path.read_text()[-3000:]}" for path in sorted(self._logs.glob("*.log")))
        sys.exit(f"{name}: {why}{logs}")


@contextmanager
def rotation(forms: dict[str, Form], env: dict[str, str], folder: Path) -> Iterator[Rotation]:
    with socket.socket(socket.AF_UNIX) as server:
        env = {**env, "BENCH_SOCKET": str(folder / "socket")}
        server.bind(env["BENCH_SOCKET"])
        server.listen()
        jobs = {}
        try:
            for name, (command, cwd) in forms.items():
                with open(folder / f"{name}.log", "wb") as log:
                    jobs[name] = subprocess.Popen(
                        [*command, name], env=env, cwd=cwd, stdout=log, stderr=subprocess.STDOUT
                    )
            made = Rotation(jobs, server, folder)
            yield made
            made.end()
        finally:
            for job in jobs.values():
                if job.poll() is None:
                    job.terminate()
                    job.wait()


def expect_same_losses(network: str, losses: dict[str, float]) -> None:
    """Different losses mean that the variants have not done the same work."""
    least, most = min(losses.values()), max(losses.values())
    if not math.isclose(least, most, rel_tol=1e-2, abs_tol=1e-3):
        sys.exit(f"{network}: the variants have different losses after the same steps: {losses}")


def turned(names: list[str], number: int) -> list[str]:
    """Changes the order, so that each variant runs before every other one as often as after it."""
    names = names if number % 2 else names[::-1]
    turn = number // 2 % len(names)
    return names[turn:] + names[:turn]


def compare(mine: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> list[str]:
    """Medians of all values, and median and quartiles of the ratios of neighbouring blocks."""
    value, other = (median([each for block in blocks for each in block]) for blocks in (mine, theirs))
    ratios = [median(a) / median(b) for a, b in zip(mine, theirs, strict=True)]
    lower, middle, upper = statistics.quantiles(ratios if len(ratios) > 1 else ratios * 2, n=4)
    return [f"{value * 1e3:.3f}", f"{other * 1e3:.3f}", f"{middle:.3f}x", f"{lower:.3f}-{upper:.3f}"]
