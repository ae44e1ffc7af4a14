"""Gives LightGBM the addresses of all workers before the training function runs."""

from __future__ import annotations

from typing import Any

from trireme import _core
from trireme._boosting._lean_import import import_lean
from trireme._context import TrainContext
from trireme._extras import import_extra
from trireme._rank_variables import node_address
from trireme.backend import NewProcessBackend
from trireme.lightgbm._network import set_network_params

_TIMEOUT_S = 1800.0


class LightGBMBackend(NewProcessBackend):
    keeps = "LightGBM keeps the network of this attempt"

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._port: _core.ReservedPort | None = None
        self._ports: set[int] = set()

    def on_start(self, context: TrainContext, session: Any) -> None:
        if self.config._lean:
            import_lean("lightgbm")
        import_extra("trireme.lightgbm", "lightgbm", "lightgbm")
        rank, world = context.get_world_rank(), context.get_world_size()
        self._port = _core.ReservedPort()
        prefix = f"lightgbm/{context._attempt}/"
        session.store_set(f"{prefix}{rank}", f"{node_address(context)}:{self._port.port}".encode())
        keys = [f"{prefix}{each}" for each in range(world)]
        machines = [each.decode() for each in session.store_multi_get(keys, _TIMEOUT_S)]
        self._ports = {int(each.rpartition(":")[2]) for each in machines}
        set_network_params(
            {"machines": ",".join(machines), "local_listen_port": self._port.port, "num_machines": world}
        )

    def on_shutdown(self, context: TrainContext, session: Any) -> None:
        from trireme.lightgbm._native import free_network
        from trireme.lightgbm._report import finish_reports

        finish_reports()
        free_network()
        set_network_params({})
        self._port = None

    def on_cancel(self, context: TrainContext, session: Any) -> None:
        _core.cut_ports(self._ports)
