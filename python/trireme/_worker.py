"""A worker process: `python -m trireme._worker`, or called in a process forked from the warm process."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

import cloudpickle

from trireme import _core, _leftovers, _ship, _stacks
from trireme._checkpoint import Checkpoint
from trireme._compat import prepare_compat
from trireme._context import TrainContext
from trireme._forked import call_ending_forks, prepare_forks
from trireme._interrupt_guard import Cancelled, InterruptGuard
from trireme._positions import Positions
from trireme._protobuf_clash import explain_clash
from trireme._report import (
    CheckpointUploadMode,
    Report,
    ReportedCheckpoint,
    ReportedCheckpointStatus,
    check_within_run,
    deletes_local,
)
from trireme._session import set_session
from trireme._storage import ArrowFiles, Location
from trireme._user_exception import dump_exception, format_exception
from trireme._validation import ValidationTaskConfig, merged_task
from trireme.backend import Backend

if TYPE_CHECKING:
    from trireme.data._trainer_datasets import DatasetPlans

_PLAIN = (type(None), bool, float, str, bytes)
_DRIVER_SCHEME = "driver://"


class WorkerSession:
    """A TrainSession over the connection to the controller.

    extras: sent by the driver with the function: the storage filesystem, resume_from_checkpoint if it is in another
    filesystem, the defaults of validations, the datasets.
    """

    def __init__(self, core: Any, start: dict[str, Any], extras: dict[str, Any]) -> None:
        self._core = core
        files: ArrowFiles | None = extras.get("storage_filesystem")
        # Not None on a node that does not see the files of the driver's machine.
        self._driver_files = _core.driver_files()
        self._run = Location(start["storage_path"], files.filesystem if files else self._files_of(start["storage_uri"]))
        self._validation: ValidationTaskConfig | None = extras.get("validation_config")
        self._checkpoint = self._first_checkpoint(start, extras)
        self.positions = Positions(start["positions"])
        if files is not None:
            core.set_filesystem(files)
        self.context = TrainContext.of(start, self._run)
        plans: DatasetPlans | None = extras.get("datasets")
        self.datasets = plans.shards(self.context, self.positions) if plans is not None else None

    def report(self, report: Report) -> None:
        validation = self._task(report) if report.validation else None
        # Also without a checkpoint: other ranks may report one with it. This ends a section of the digest logs.
        positions = self.positions.now()
        totals = self.datasets.totals() if self.datasets is not None else None
        if report.checkpoint is None:
            with self._leaving():
                self._core.report(report.metrics, validation=validation, positions=positions, data=totals)
            return
        options = self._prepare(report)
        with self._leaving(), _own_exception(options.get("upload")):
            self._core.report(
                report.metrics,
                checkpoint_dir_name=report.dir_name,
                mode=report.mode.name,
                validation=validation,
                positions=positions,
                data=totals,
                **options,
            )

    def get_checkpoint(self) -> Checkpoint | None:
        stored: str | None = self._core.newest_checkpoint()
        return self._checkpoint if stored is None else Checkpoint.at(Location(stored, self._run.filesystem))

    def reported_checkpoints(self, validated: bool, timeout_s: float | None) -> list[ReportedCheckpoint]:
        return [
            ReportedCheckpoint(
                Checkpoint.at(Location(known["path"], self._run.filesystem)),
                known["metrics"],
                ReportedCheckpointStatus[known["status"].upper()],
            )
            for known in self._core.list_checkpoints(validated, timeout_s)
        ]

    def barrier(self) -> None:
        with self._leaving():
            self._core.barrier()

    def broadcast_from_rank_zero(self, data: Any) -> Any:
        mine = cloudpickle.dumps(data) if self.context.get_world_rank() == 0 else None
        with self._leaving():
            sent = self._core.broadcast(mine)
        return data if mine is not None else cloudpickle.loads(sent)

    def preemption(self) -> dict[str, Any] | None:
        known: dict[str, Any] | None = self.broadcast_from_rank_zero(self._core.preemption())
        return known

    @contextmanager
    def _leaving(self) -> Iterator[None]:
        """Turns the error of an interrupted wait into Cancelled, which user code does not handle."""
        try:
            yield
        except RuntimeError:
            if self._core.cancelled:
                raise Cancelled("the training function is interrupted for the next attempt") from None
            raise

    def _first_checkpoint(self, start: dict[str, Any], extras: dict[str, Any]) -> Checkpoint | None:
        if not start["checkpoint"]:
            return None
        if not start["checkpoint_in_storage"]:
            given: Checkpoint | None = extras.get("resume_from_checkpoint")
            path: str = start["checkpoint"]
            if given is None and (files := self._files_of(path)) is not None:
                return Checkpoint.at(Location(path.removeprefix(_DRIVER_SCHEME), files))
            return given or Checkpoint(path)
        return Checkpoint.at(Location(start["checkpoint"], self._run.filesystem), start["memory"])

    def _files_of(self, uri: str) -> _core.DriverFiles | None:
        return self._driver_files if uri.startswith(_DRIVER_SCHEME) else None

    def _task(self, report: Report) -> dict[str, Any]:
        if self._validation is None:
            raise ValueError(
                "report(validation=...) needs a function: pass the trainer validation_config=ValidationConfig(fn)"
            )
        return merged_task(self._validation, report.validation)

    def _prepare(self, report: Report) -> dict[str, Any]:
        """The checkpoint's options for the core: a state, a function that stores it, or a local folder."""
        checkpoint = report.checkpoint
        assert checkpoint is not None
        if checkpoint._state is not None and self._takes_state(report):
            from trireme._state import encode

            return {"state": encode(checkpoint._state, checkpoint._allow_pickle)}
        where = checkpoint._where()
        if self._stores_by_function(report):  # the function may create the files
            return {
                "checkpoint": where.path if where.local else None,
                "delete_local": deletes_local(report, self._run),
                "upload": _Upload(self._core, self._run, self.context.get_metadata(), report),
            }
        checkpoint._check_present(where)
        if metadata := self.context.get_metadata():
            checkpoint.set_metadata({**metadata, **checkpoint.get_metadata()})
        if report.mode is CheckpointUploadMode.NO_UPLOAD:
            check_within_run(checkpoint, self._run, "report(checkpoint_upload_mode=NO_UPLOAD): the checkpoint")
            return {"checkpoint": where.path}
        if not where.local:  # from another storage: copied through this machine
            return {"checkpoint": checkpoint.to_directory(), "delete_local": True}
        return {"checkpoint": where.path, "delete_local": deletes_local(report, self._run)}

    def _takes_state(self, report: Report) -> bool:
        """Whether the state is stored directly from memory: nothing needs its files first."""
        needs_files = self._stores_by_function(report) or report.mode is CheckpointUploadMode.NO_UPLOAD
        return not needs_files and not self.context.get_metadata()

    def _stores_by_function(self, report: Report) -> bool:
        return report.upload_fn is not None and report.mode is not CheckpointUploadMode.NO_UPLOAD


class _Upload:
    """Calls checkpoint_upload_fn with a checkpoint's name and returns the path of the files. Keeps its exception."""

    def __init__(self, core: Any, run: Location, metadata: dict[str, Any], report: Report) -> None:
        self._core = core
        self._run = run
        self._metadata = metadata
        self._report = report
        self.error: BaseException | None = None

    def __call__(self, name: str) -> str:
        try:
            return self._call(name)
        except BaseException as error:
            self.error = error
            if self._report.mode is CheckpointUploadMode.ASYNC:  # report() has already returned
                text = format_exception(error)
                print(text, file=sys.stderr, end="", flush=True)
                self._core.fail(type(error).__name__, str(error), text, dump_exception(error))
            raise

    def _call(self, name: str) -> str:
        function, given = self._report.upload_fn, self._report.checkpoint
        assert function is not None and given is not None
        stored = function(given, name)
        if not isinstance(stored, Checkpoint):
            raise ValueError(
                f"checkpoint_upload_fn must return a trireme.Checkpoint, got {type(stored).__name__}; return "
                "Checkpoint(path, filesystem) of the stored files"
            )
        check_within_run(stored, self._run, "the checkpoint returned by checkpoint_upload_fn")
        if self._metadata:
            stored._check_present(stored._where())
            stored.set_metadata({**self._metadata, **stored.get_metadata()})
        return stored.path


@contextmanager
def _own_exception(upload: _Upload | None) -> Iterator[None]:
    """Raises the exception of the user's function instead of the core's error."""
    try:
        yield
    except RuntimeError:
        if upload is not None and upload.error is not None:
            raise upload.error from None
        raise


def main(ticket: str) -> int:
    """Runs the training function for every attempt that this process is part of.

    The exit code is informational: finish() reports success.
    """
    if os.environ.get("TRIREME_FUNCTION_HOST"):
        from trireme._process_host import fork_host

        fork_host()
    _stacks.prepare()
    prepare_forks()
    prepare_compat()
    core = _core.Session(ticket)
    core.watch_termination()
    guard = InterruptGuard(core)
    start = core.wait_start()
    while True:
        attempt = _Attempt(core, start)
        succeeded = attempt.run(guard)
        if not core.wait_for_cancel():
            core.set_on_cancel(None)  # it refers to the session, which could not be closed
            return 0 if succeeded else 1
        if core.may_decline and (objection := attempt.objection()):
            _end_process(f"this process is replaced for the next attempt: {objection}")
        attempt.clear()
        device = _leftovers.device_in_use()
        if device is not None:
            try:
                _leftovers.clear_device(device)
            except Exception as error:  # every later call would raise it again
                _end_process(f"this process is replaced for the next attempt: its device is unusable: {error}")
        core.become_ready()
        if device is None:
            _leftovers.collect_garbage()  # while other workers are replaced
        start = core.wait_start()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError):  # the disk may be full
                stream.flush()
        _core.redirect_output(start["log_path"])


class _Attempt:
    """One call of the training function, with the setup of its framework."""

    def __init__(self, core: Any, start: dict[str, Any]) -> None:
        self._core = core
        self._start = start
        self._session: WorkerSession | None = None
        self._backend: Backend | None = None

    def run(self, guard: InterruptGuard) -> bool:
        """Whether the function did not fail. The outcome of a cancelled function is ignored."""
        # The only boundary between Trireme and user code: any exception is a failure of this worker.
        try:
            with guard:
                value = self._call()
            if self._start["world_rank"] == 0:
                _finish(self._core, value)
            else:
                self._core.finish(None, False)
        except BaseException as error:
            if isinstance(error, Cancelled) or self._core.cancelled:
                return True
            text = format_exception(error)
            with contextlib.suppress(OSError):  # a full disk must not hide the error
                print(text, file=sys.stderr, end="", flush=True)
            self._core.fail(type(error).__name__, explain_clash(error) or str(error), text, dump_exception(error))
            return False
        return True

    def clear(self) -> None:
        """Releases everything that belongs to this attempt, such as connections to ranks that have exited."""
        set_session(None)
        if self._backend is not None and self._session is not None:
            self._backend.on_interrupt(self._session.context, self._core)
        if self._session is not None and self._session.datasets is not None:
            self._session.datasets.close()
            _close_functions()
        self._backend = self._session = None

    def objection(self) -> str:
        return self._backend.objection() if self._backend is not None else ""

    def _call(self) -> Any:
        function, arguments, extras = _ship.unpack(self._start["payload"], self._start["code"])
        self._session = session = WorkerSession(self._core, self._start, extras)
        set_session(session)
        backend_config = extras["backend_config"]
        self._backend = backend = backend_config.backend_cls(backend_config)
        if type(backend).on_cancel is not Backend.on_cancel:  # without it, a cancel does not need the GIL
            self._core.set_on_cancel(functools.partial(backend.on_cancel, session.context, self._core))
        backend.on_start(session.context, self._core)
        self._core.entered(backend.holds(session.context))
        function = backend.training_function(session.context, self._core, function)
        value = call_ending_forks(function, *arguments)
        if session.datasets is not None:
            session.datasets.finish()
        backend.on_shutdown(session.context, self._core)
        return value


def _end_process(why: str) -> NoReturn:
    """Exits without cleanup: exit handlers of libraries would wait for ranks that have exited."""
    print(f"trireme: {why}", file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)


def _close_functions() -> None:
    """Closes the processes of dataset functions, if any."""
    if pool := sys.modules.get("trireme.data._function_processes"):
        pool.close()


def _finish(core: Any, value: Any) -> None:
    if is_plain(value):
        core.finish(value, False)
        return
    try:
        dumped = cloudpickle.dumps(value)
    except Exception as error:
        raise TypeError(
            f"the return value of the training function, a {type(value).__name__}, cannot be pickled ({error}); return "
            "plain values, or store it in a checkpoint with report()"
        ) from error
    core.finish(dumped, True)


def is_plain(value: Any) -> bool:
    """Whether it can be read without unpickling, for example by C++ programs."""
    kind = type(value)
    if kind is list:
        return all(map(is_plain, value))
    if kind is dict:
        return all(type(key) is str and is_plain(item) for key, item in value.items())
    return kind in _PLAIN or (kind is int and -(1 << 63) <= value < 1 << 63)


def _read_ticket() -> str:
    with open(int(os.environ.pop("TRIREME_TICKET_FD")), encoding="utf-8") as file:
        return file.read()


if __name__ == "__main__":
    os.environ["TRIREME_WORKER"] = "1"
    sys.modules["__main__"] = types.ModuleType("__main__")  # as in forked workers
    sys.exit(main(_read_ticket()))
