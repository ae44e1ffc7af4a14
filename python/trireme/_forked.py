"""Processes that a training function forks: they have the worker's memory, but they are not the worker."""

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
    """What such a process finds in place of the worker's session: its values. The connection is the worker's."""

    def __init__(self, of: TrainSession, worker: int) -> None:
        self._of = of  # also keeps the connection's object alive: destroying it here would end the worker's
        self._worker = worker
        self.context = of.context
        self.positions = of.positions

    def get_checkpoint(self) -> Checkpoint | None:
        return self._of.get_checkpoint()

    @property
    def datasets(self) -> NoReturn:
        self._refuse("get_dataset_shard", "read the shard in the worker; DataConfig(num_threads=...) reads in parallel")

    def report(self, report: Report) -> NoReturn:
        self._refuse("report", "send the values to the worker, and report them there")

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
            f"{call}() in process {os.getpid()}, which was forked from the worker (pid {self._worker}): only the "
            f"worker is connected to the run; {advice}"
        )


def prepare_forks() -> None:
    """Once in a worker."""
    worker = os.getpid()

    def enter_fork() -> None:
        session = set_session(None)
        if session is not None:
            set_session(session if isinstance(session, ForkedSession) else ForkedSession(session, worker))

    os.register_at_fork(after_in_child=enter_fork)


def call_ending_forks(function: Callable[..., T], *arguments: Any) -> T:
    """A child that comes out of the user's function ends here: whoever waits for this process hears of it only."""
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
    """With the exit code that a script would end with; what the parent has registered for its own end is not run."""
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
