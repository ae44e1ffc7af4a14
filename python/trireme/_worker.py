"""A worker process, from its ticket to its end: `python -m trireme._worker`, or called in a process just forked."""

from __future__ import annotations

import os
import sys
import traceback
import types
from typing import Any

import cloudpickle

from trireme import _core, _ship
from trireme._checkpoint import Checkpoint
from trireme._context import TrainContext
from trireme._session import set_session

_PACKAGE = os.path.dirname(os.path.abspath(__file__))


class WorkerSession:
    """A TrainSession over the connection to the controller."""

    def __init__(self, core: Any, start: dict[str, Any]) -> None:
        self._core = core
        self._checkpoint = Checkpoint(start["checkpoint"]) if start["checkpoint"] else None
        self.context = TrainContext(
            _experiment_name=start["run_name"],
            _world_size=start["world_size"],
            _world_rank=start["rank"],
            _local_world_size=start["local_world_size"],
            _local_rank=start["local_rank"],
            _node_rank=start["node_rank"],
            _run_id=start["run_id"],
            _path=start["path"],
            _attempt=start["attempt"],
            _hosts=start["nodes"],
            _gpus=start["gpus"],
            _resources=start["resources"],
            _metadata=start["metadata"],
        )

    def report(self, metrics: dict[str, Any], checkpoint: Checkpoint | None, dir_name: str | None) -> None:
        stored = self._core.report(metrics, checkpoint.path if checkpoint else None, dir_name)
        if stored is not None:
            self._checkpoint = Checkpoint(stored)

    def get_checkpoint(self) -> Checkpoint | None:
        return self._checkpoint

    def barrier(self) -> None:
        self._core.barrier()

    def broadcast_from_rank_zero(self, data: Any) -> Any:
        mine = cloudpickle.dumps(data) if self.context.get_world_rank() == 0 else None
        sent = self._core.broadcast(mine)
        return data if mine is not None else cloudpickle.loads(sent)


def main(ticket: str) -> int:
    """Runs the training function. The exit code is for people only: success is what finish() has told."""
    core = _core.Session(ticket)
    start = core.wait_start()
    session = WorkerSession(core, start)
    set_session(session)
    # The one border between Trireme and the user's code: whatever comes out of it is this worker's failure.
    try:
        value = _run(core, session, start["payload"])
        core.finish(_dump_return_value(value) if start["rank"] == 0 else None)
    except BaseException as error:
        text = _format(error)
        print(text, file=sys.stderr, end="", flush=True)
        core.fail(type(error).__name__, str(error), text, _dump_exception(error))
        return 1
    return 0


def _run(core: Any, session: WorkerSession, payload: bytes) -> Any:
    function, arguments, backend_config = _ship.unpack(payload)
    backend = backend_config.backend_cls(backend_config)
    backend.on_start(session.context, core)
    core.entered()
    value = function(*arguments)
    backend.on_shutdown(session.context, core)
    return value


def _dump_return_value(value: Any) -> bytes | None:
    if value is None:
        return None
    try:
        dumped: bytes = cloudpickle.dumps(value)
    except Exception as error:
        raise TypeError(
            f"the return value of the training function, a {type(value).__name__}, cannot be pickled ({error}); return "
            "plain values, or report() a checkpoint"
        ) from error
    return dumped


def _dump_exception(error: BaseException) -> bytes | None:
    """None where the driver could not load it: an exception whose __init__ wants more than its args, for example."""
    try:
        dumped: bytes = cloudpickle.dumps(error)
        cloudpickle.loads(dumped)
    except BaseException:
        return None
    return dumped


def _format(error: BaseException) -> str:
    """The traceback from the user's function on; the frames that lead to it are ours and say nothing."""
    trace: types.TracebackType | None = error.__traceback__
    while trace and trace.tb_next and trace.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))


def _read_ticket() -> str:
    with open(int(os.environ.pop("TRIREME_TICKET_FD")), encoding="utf-8") as file:
        return file.read()


if __name__ == "__main__":
    os.environ["TRIREME_WORKER"] = "1"
    sys.modules["__main__"] = types.ModuleType("__main__")  # as the forked ones have it
    sys.exit(main(_read_ticket()))
