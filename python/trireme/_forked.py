"""Processes forked by a training function: they share the worker's memory but not its connection to the run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from trireme._checkpoint import Checkpoint
from trireme._report import Report, ReportedCheckpoint
from trireme._session import TrainSession, set_session
from trireme._user_exception import format_exception

T = TypeVar("T")


class ForkedSession:
    """Replaces the worker's session in a forked process: provides its values, refuses calls to the controller."""

    def __init__(self, of: TrainSession, worker: int) -> None:
        self._of = of  # keeps the connection object alive: destroying it here would close the worker's connection
        self._worker = worker
        self.context = of.context
        self.positions = of.positions

    def get_checkpoint(self) -> Checkpoint | None:
        return self._of.get_checkpoint()

    @property
    def datasets(self) -> NoReturn:
        self._refuse("get_dataset_shard", "read the shard in the worker; DataConfig(num_threads=...) reads in parallel")

    def report(self, report: Report) -> NoReturn:
        self._refuse("report", "send the values to the worker and report them there")

    def reported_checkpoints(self, validated: bool, timeout_s: float | None) -> list[ReportedCheckpoint]:
        self._refuse("get_all_reported_checkpoints", "call it in the worker")

    def barrier(self) -> NoReturn:
        self._refuse("collective.barrier", "call it in the worker")

    def broadcast_from_rank_zero(self, data: Any) -> Any:
        self._refuse("collective.broadcast_from_rank_zero", "call it in the worker")

    def preemption(self) -> dict[str, Any] | None:
        self._refuse("get_preemption_info", "call it in the worker")

    def _refuse(self, call: str, advice: str) -> NoReturn:
        raise RuntimeError(
            f"{call}() was called in process {os.getpid()}, which was forked from the worker (pid {self._worker}): "
            f"only the worker is connected to the run; {advice}"
        )


def prepare_forks() -> None:
    """Called once in a worker."""
    worker = os.getpid()

    def enter_fork() -> None:
        session = set_session(None)
        if session is not None:
            set_session(session if isinstance(session, ForkedSession) else ForkedSession(session, worker))

    os.register_at_fork(after_in_child=enter_fork)


def call_ending_forks(function: Callable[..., T], *arguments: Any) -> T:
    """Calls the function. A forked child that returns from it exits here and never runs the worker's code."""
    process = os.getpid()
    try:
        value = function(*arguments)
    except BaseException as error:
        if os.getpid() != process:
            _end(error)
        raise
    if os.getpid() != process:
        _end(None)
    return value


def _end(error: BaseException | None) -> NoReturn:
    """Exits with a script's exit code and skips the exit handlers inherited from the worker."""
    code = 0
    try:
        if isinstance(error, SystemExit) and (error.code is None or isinstance(error.code, int)):
            code = error.code or 0
        elif error is not None:
            code = 1
            text = f"{error.code}\n" if isinstance(error, SystemExit) else format_exception(error)
            sys.stderr.write(text)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code & 0xFF)
