"""Validation of checkpoints beside training: what the user configures, and the processes that do it."""

from __future__ import annotations

import json
import os
import pickle
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from trireme import _core, _ship
from trireme._checkpoint import Checkpoint
from trireme._storage import Location

if TYPE_CHECKING:
    import subprocess

    from trireme._runtime_env import WorkerStart


class ValidationFn(Protocol):
    """Takes a checkpoint and the fn_kwargs, returns metrics, which are merged over the reported ones."""

    def __call__(self, checkpoint: Checkpoint, /, **kwargs: Any) -> dict[str, Any]: ...


class ValidationTaskConfig:
    """How one checkpoint is validated: keyword arguments for the function, JSON only because they outlive the process,
    and how long it may take."""

    def __init__(self, fn_kwargs: dict[str, Any] | None = None, timeout_s: float | None = None) -> None:
        if fn_kwargs is not None and not isinstance(fn_kwargs, dict):
            raise TypeError(f"ValidationTaskConfig.fn_kwargs must be a dict, got {type(fn_kwargs).__name__}")
        for key, value in (fn_kwargs or {}).items():
            if not isinstance(key, str):
                raise TypeError(f"ValidationTaskConfig.fn_kwargs: keys are names of arguments, got {key!r}")
            try:
                json.dumps(value)
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"ValidationTaskConfig.fn_kwargs[{key!r}] must be JSON, because a continued run reads it again "
                    f"({error}); put other values into the function, with functools.partial for example"
                ) from error
        if timeout_s is not None and not timeout_s > 0:
            raise ValueError(f"ValidationTaskConfig.timeout_s = {timeout_s}: must be above 0, or None for no limit")
        self.fn_kwargs = dict(fn_kwargs or {})
        self.timeout_s = None if timeout_s is None else float(timeout_s)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ValidationTaskConfig) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ValidationTaskConfig(fn_kwargs={self.fn_kwargs!r}, timeout_s={self.timeout_s!r})"


class ValidationConfig:
    """What `report(..., validation=True)` calls, with defaults for every call.

    ray_remote_kwargs is taken for compatibility; of it, runtime_env["env_vars"] has an effect.
    """

    def __init__(
        self,
        fn: Callable[..., dict[str, Any]],
        task_config: ValidationTaskConfig | None = None,
        ray_remote_kwargs: dict[str, Any] | None = None,
    ) -> None:
        if not callable(fn):
            raise TypeError(f"ValidationConfig(fn=...) must be a function, got {type(fn).__name__}")
        if task_config is not None and not isinstance(task_config, ValidationTaskConfig):
            raise TypeError(
                f"ValidationConfig(task_config=...) must be a ValidationTaskConfig, got {type(task_config).__name__}"
            )
        self.fn = fn
        self.task_config = task_config or ValidationTaskConfig()
        self.ray_remote_kwargs = dict(ray_remote_kwargs or {})

    @property
    def env_vars(self) -> dict[str, str]:
        return dict((self.ray_remote_kwargs.get("runtime_env") or {}).get("env_vars") or {})

    @staticmethod
    def task_for(config: ValidationConfig | None, asked: bool | ValidationTaskConfig) -> dict[str, Any]:
        """What one report asks for, laid over the defaults."""
        if config is None:
            raise ValueError(
                "report(validation=...) needs a function: give the trainer validation_config=ValidationConfig(fn)"
            )
        return merged_task(config.task_config, asked)


def merged_task(default: ValidationTaskConfig, asked: bool | ValidationTaskConfig) -> dict[str, Any]:
    task = asked if isinstance(asked, ValidationTaskConfig) else ValidationTaskConfig()
    timeout_s = default.timeout_s if task.timeout_s is None else task.timeout_s
    return {"fn_kwargs": {**default.fn_kwargs, **task.fn_kwargs}, "timeout_s": timeout_s}


def checked_metrics(returned: Any) -> dict[str, Any]:
    if not isinstance(returned, dict):
        raise TypeError(f"a validation function must return a dict of metrics, got {type(returned).__name__}")
    checked: dict[str, Any] = _core.check_metrics(returned)
    return checked


@dataclass
class _Running:
    name: str
    process: subprocess.Popen[bytes]
    answer: int  # a file in memory that the process writes
    deadline: float | None
    timeout_s: float | None
    log: str


Finish = Callable[[str, str, dict[str, Any], str], None]


class ValidationRunner:
    """Validates one checkpoint after the other, each in a process of its own. Driven by fit()'s loop; starts no thread.

    `finish` is told name, status, metrics and message of each.
    """

    def __init__(
        self, config: ValidationConfig | None, run_path: str, storage: Location, start: WorkerStart, finish: Finish
    ) -> None:
        self._config = config
        self._logs = os.path.join(run_path, "logs", "validation")
        self._storage = storage
        self._start = start
        self._finish = finish
        self._waiting: deque[dict[str, Any]] = deque()
        self._running: _Running | None = None
        # Now, so that a function which cannot be sent is refused before anything starts.
        self._function = b"" if config is None else _ship.pack(config.fn, (), {}, start.sys_path)

    def request(self, event: dict[str, Any]) -> None:
        """A `validation_requested` event."""
        self._waiting.append(event)
        self.poll()

    def poll(self) -> None:
        """Takes what is finished, ends what is late, begins what is next. Never waits."""
        if self._running is not None and not self._take():
            return
        while self._waiting and self._running is None:
            self._begin(self._waiting.popleft())

    def close(self) -> None:
        """Ends what runs; those that are not answered stay pending, and a continued run asks for them again."""
        self._waiting.clear()
        if self._running is not None:
            self._kill(self._running)
            os.close(self._running.answer)
            self._running = None

    def _begin(self, event: dict[str, Any]) -> None:
        name = event["name"]
        if self._config is None:
            self._finish(name, "VALIDATION_FAILED", {}, "the trainer has no validation_config")
            return
        checkpoint = Checkpoint.at(Location(event["path"], self._storage.filesystem))
        try:
            self._running = self._spawn(name, checkpoint, event["fn_kwargs"] or {}, event["timeout_s"])
        except Exception as error:  # no processes left, no space for the log, ...
            self._finish(name, "VALIDATION_FAILED", {}, f"its process cannot be started: {error}")

    def _spawn(self, name: str, checkpoint: Checkpoint, kwargs: dict[str, Any], timeout_s: float | None) -> _Running:
        import subprocess

        import cloudpickle

        assert self._config is not None
        os.makedirs(self._logs, exist_ok=True)
        log = os.path.join(self._logs, f"{name}.log")
        task = os.memfd_create("trireme_validation_task", 0)
        answer = os.memfd_create("trireme_validation_answer", 0)
        try:
            with open(os.dup(task), "wb") as file:
                pickle.dump((os.getpid(), self._function, cloudpickle.dumps((checkpoint, kwargs))), file)
            os.lseek(task, 0, os.SEEK_SET)
            env = {**self._start.env, **self._config.env_vars}
            env.pop("TRIREME_RUN_NUM_WORKERS", None)  # meant for the script's trainers, not for those of the function
            with open(log, "ab") as output:
                process = subprocess.Popen(
                    [sys.executable, "-m", "trireme._validate", str(task), str(answer)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=self._start.cwd,
                    env=env,
                    pass_fds=(task, answer),
                    start_new_session=True,
                )
        except BaseException:
            os.close(answer)
            raise
        finally:
            os.close(task)
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        return _Running(name, process, answer, deadline, timeout_s, log)

    def _take(self) -> bool:
        """Whether the one that runs is over."""
        running = self._running
        assert running is not None
        status, metrics, message = "VALIDATION_TIMEOUT", dict[str, Any](), ""
        if running.process.poll() is None:
            if running.deadline is None or time.monotonic() < running.deadline:
                return False
            self._kill(running)
            message = f"not done within {running.timeout_s:g} s (timeout_s)"
        else:
            _kill_group(running.process.pid)  # what it has left behind
            status, metrics, message = _read_answer(running)
        os.close(running.answer)
        self._running = None
        self._finish(running.name, status, metrics, message)
        return True

    def _kill(self, running: _Running) -> None:
        _kill_group(running.process.pid)
        running.process.wait()


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _read_answer(running: _Running) -> tuple[str, dict[str, Any], str]:
    with open(os.dup(running.answer), "rb") as file:
        file.seek(0)
        try:
            metrics, error = pickle.load(file)
        except Exception:
            code = running.process.returncode
            how = f"was killed with signal {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            return "VALIDATION_FAILED", {}, f"its process {how} before the function returned; see {running.log}"
    if error is not None:
        return "VALIDATION_FAILED", {}, f"{error}; see {running.log}"
    return "VALIDATED", metrics, ""
