"""Sets up XGBoost's communicator on a worker before the training function runs."""

from __future__ import annotations

import json
from typing import Any

from trireme import _core
from trireme._boosting._lean_import import import_lean
from trireme._context import TrainContext
from trireme._extras import import_extra
from trireme._rank_variables import node_address
from trireme.backend import NewProcessBackend


class XGBoostBackend(NewProcessBackend):
    keeps = "XGBoost keeps the communicator of this attempt"

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._connections: _core.TcpConnections | None = None
        self._tracker: Any = None

    def on_start(self, context: TrainContext, session: Any) -> None:
        if self.config._lean:
            import_lean("xgboost")
        import_extra("trireme.xgboost", "xgboost", "xgboost")
        from xgboost import collective
        from xgboost.tracker import RabitTracker

        rank, world = context.get_world_rank(), context.get_world_size()
        timeout = int(self.config.timeout_s)
        session.set_collective_timeout(timeout)
        key = f"xgboost/{context._attempt}/tracker"
        if rank == 0:
            # In this process: XGBoost's workers do not need it once they are connected.
            self._tracker = RabitTracker(n_workers=world, host_ip=node_address(context), sortby="task")
            self._tracker.start()
            session.store_set(key, json.dumps(self._tracker.worker_args()).encode())
        arguments = json.loads(session.store_get(key, timeout))
        self._connections = _core.TcpConnections()
        try:
            # Ranks are sorted as text.
            collective.init(**arguments, dmlc_task_id=f"{rank:010d}", dmlc_timeout=timeout)
        finally:
            self._connections.record()
        if collective.get_rank() != rank:
            raise RuntimeError(f"XGBoost has given rank {collective.get_rank()} to the worker with rank {rank}")

    def on_shutdown(self, context: TrainContext, session: Any) -> None:
        from xgboost import collective

        collective.finalize()
        if self._tracker is not None:
            self._tracker.wait_for()
            self._tracker.free()

    def on_cancel(self, context: TrainContext, session: Any) -> None:
        if self._connections is not None:
            self._connections.cut()
