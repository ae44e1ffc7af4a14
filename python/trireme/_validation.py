"""Validation of checkpoints in parallel with training: its configuration and its processes."""

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
    """Receives a checkpoint and the fn_kwargs. Returns metrics, which are merged into the reported ones."""

    def __call__(self, checkpoint: Checkpoint, /, **kwargs: Any) -> dict[str, Any]: ...


class ValidationTaskConfig:
    """Options for the validation of one checkpoint.

    fn_kwargs: keyword arguments of the function. They are stored with the run and must be JSON.
    timeout_s: time limit in seconds; None: unlimited.
    """

    def __init__(self, fn_kwargs: dict[str, Any] | None = None, timeout_s: float | None = None) -> None:
        if fn_kwargs is not None and not isinstance(fn_kwargs, dict):
            raise TypeError(f"ValidationTaskConfig.fn_kwargs must be a dict, got {type(fn_kwargs).__name__}")
        for key, value in (fn_kwargs or {}).items():
            if not isinstance(key, str):
                raise TypeError(f"ValidationTaskConfig.fn_kwargs: keys must be argument names, got {key!r}")
            try:
                json.dumps(value)
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"ValidationTaskConfig.fn_kwargs[{key!r}] must be JSON, because a continued run reads it again "
                    f"({error}); bind other values to the function, for example with functools.partial"
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
    """The function that `report(..., validation=True)` calls, and defaults for every call.

    ray_remote_kwargs is accepted for compatibility. Only these keys have an effect: runtime_env["env_vars"];
    max_retries (default 3, -1: unlimited), the number of retries after the validation process dies; retry_exceptions
    (default False), True or a list of exception classes that also cause a retry.
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
        if type(self.max_retries) is not int or self.max_retries < -1:
            raise ValueError(
                f"ValidationConfig: ray_remote_kwargs['max_retries'] = {self.max_retries!r}: must be an integer, 0 or "
                "more, or -1 for no limit"
            )
        if not all(isinstance(kind, type) and issubclass(kind, BaseException) for kind in self.retry_exceptions):
            raise TypeError(
                "ValidationConfig: ray_remote_kwargs['retry_exceptions'] must be True, False or a list of exception "
                f"classes, got {self.ray_remote_kwargs['retry_exceptions']!r}"
            )

    @property
    def max_retries(self) -> int:
        retries: int = self.ray_remote_kwargs.get("max_retries", 3)
        return retries

    @property
    def retry_exceptions(self) -> tuple[type[BaseException], ...]:
        """The exceptions after which the function is called again."""
        asked = self.ray_remote_kwargs.get("retry_exceptions", False)
        if isinstance(asked, bool):
            return (Exception,) if asked else ()
        return tuple(asked) if isinstance(asked, (list, tuple)) else (asked,)

    @property
    def env_vars(self) -> dict[str, str]:
        return dict((self.ray_remote_kwargs.get("runtime_env") or {}).get("env_vars") or {})

    @staticmethod
    def task_for(config: ValidationConfig | None, asked: bool | ValidationTaskConfig) -> dict[str, Any]:
        """The options of one report, merged with the defaults."""
        if config is None:
            raise ValueError(
                "report(validation=...) needs a function: pass the trainer validation_config=ValidationConfig(fn)"
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
class _Task:
    """One validation, including its retries."""

    name: str
    checkpoint: Checkpoint
    kwargs: dict[str, Any]
    timeout_s: float | None
    deadline: float | None
    log: str
    retries: int = 0


@dataclass
class _Running:
    task: _Task
    process: subprocess.Popen[bytes]
    answer: int  # an in-memory file that the process writes


@dataclass
class _Answer:
    status: str
    metrics: dict[str, Any]
    message: str
    may_retry: bool = False


# A longer gap between two polls means that this process was paused, and the validation with it.
_PAUSED_S = 5.0


Finish = Callable[[str, str, dict[str, Any], str], None]


class ValidationRunner:
    """Validates checkpoints one at a time, each in a separate process. Driven by fit()'s loop; starts no thread.

    `finish` receives the name, status, metrics and message of each validation.
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
        self._polled = time.monotonic()
        # Pickled now, so that a function which cannot be sent is rejected before anything starts.
        self._function = b"" if config is None else _ship.pack(config.fn, (), {}, start.sys_path)

    def request(self, event: dict[str, Any]) -> None:
        """Handles a `validation_requested` event."""
        self._waiting.append(event)
        self.poll()

    def poll(self) -> None:
        """Collects a finished validation, kills a late one, starts the next. Never waits."""
        self._forgive_own_pause()
        if self._running is not None and not self._take():
            return
        while self._waiting and self._running is None:
            self._begin(self._waiting.popleft())

    def _forgive_own_pause(self) -> None:
        now = time.monotonic()
        paused, self._polled = now - self._polled, now
        if paused > _PAUSED_S and self._running is not None and self._running.task.deadline is not None:
            self._running.task.deadline += paused

    def close(self) -> None:
        """Kills the running validation. Unfinished validations stay pending and are requested again by a continued
        run."""
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
        timeout_s = event["timeout_s"]
        task = _Task(
            name,
            Checkpoint.at(Location(event["path"], self._storage.filesystem)),
            event["fn_kwargs"] or {},
            timeout_s,
            None if timeout_s is None else time.monotonic() + timeout_s,
            os.path.join(self._logs, f"{name}.log"),
        )
        self._start_process(task)

    def _start_process(self, task: _Task) -> None:
        try:
            self._running = self._spawn(task)
        except Exception as error:  # process limit, no space for the log, ...
            self._finish(task.name, "VALIDATION_FAILED", {}, f"its process cannot be started: {error}")

    def _spawn(self, task: _Task) -> _Running:
        import subprocess

        import cloudpickle

        assert self._config is not None
        os.makedirs(self._logs, exist_ok=True)
        given = os.memfd_create("trireme_validation_task", 0)
        answer = os.memfd_create("trireme_validation_answer", 0)
        try:
            arguments = cloudpickle.dumps((task.checkpoint, task.kwargs, self._config.retry_exceptions))
            with open(os.dup(given), "wb") as file:
                pickle.dump((os.getpid(), self._function, arguments), file)
            os.lseek(given, 0, os.SEEK_SET)
            env = {**self._start.env, **self._config.env_vars}
            env.pop("TRIREME_RUN_NUM_WORKERS", None)  # applies to the script's trainers, not to the function's
            with open(task.log, "ab") as output:
                process = subprocess.Popen(
                    [sys.executable, "-m", "trireme._validate", str(given), str(answer)],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    cwd=self._start.cwd,
                    env=env,
                    pass_fds=(given, answer),
                    start_new_session=True,
                )
        except BaseException:
            os.close(answer)
            raise
        finally:
            os.close(given)
        return _Running(task, process, answer)

    def _take(self) -> bool:
        """Whether the running validation has ended."""
        running = self._running
        assert running is not None
        task = running.task
        if running.process.poll() is None:
            if task.deadline is None or time.monotonic() < task.deadline:
                return False
            self._kill(running)
            answer = _Answer("VALIDATION_TIMEOUT", {}, f"not done within {task.timeout_s:g} s (timeout_s)")
        else:
            _kill_group(running.process.pid)  # child processes that it left running
            answer = _read_answer(running)
        os.close(running.answer)
        self._running = None
        if answer.may_retry and self._may_retry(task):
            self._retry(task, answer.message)
        else:
            self._finish(task.name, answer.status, answer.metrics, answer.message)
        return self._running is None

    def _may_retry(self, task: _Task) -> bool:
        assert self._config is not None
        in_time = task.deadline is None or time.monotonic() < task.deadline
        return in_time and (self._config.max_retries < 0 or task.retries < self._config.max_retries)

    def _retry(self, task: _Task, why: str) -> None:
        assert self._config is not None
        task.retries += 1
        most = "" if self._config.max_retries < 0 else f" of {self._config.max_retries}"
        with suppress(OSError), open(task.log, "a", encoding="utf-8") as log:
            log.write(f"trireme: retry {task.retries}{most}: {why}\n")
        self._start_process(task)

    def _kill(self, running: _Running) -> None:
        _kill_group(running.process.pid)
        running.process.wait()


def _kill_group(pid: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _read_answer(running: _Running) -> _Answer:
    log = running.task.log
    with open(os.dup(running.answer), "rb") as file:
        file.seek(0)
        try:
            metrics, error, may_retry = pickle.load(file)
        except Exception:
            code = running.process.returncode
            how = f"was killed with signal {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
            message = f"its process {how} before the function returned; see {log}"
            return _Answer("VALIDATION_FAILED", {}, message, may_retry=True)
    if error is not None:
        return _Answer("VALIDATION_FAILED", {}, f"{error}; see {log}", may_retry)
    return _Answer("VALIDATED", metrics, "")
