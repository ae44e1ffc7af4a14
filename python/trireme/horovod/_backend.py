"""Sets the variables that hvd.init() reads, and adapts what does not work on a worker of a run."""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

from trireme._after_import import after_import
from trireme._context import TrainContext
from trireme._rank_variables import node_address
from trireme.backend import NewProcessBackend
from trireme.horovod._adapt import check_group, refuse_keras_3
from trireme.horovod._elastic import continue_from_checkpoints
from trireme.horovod._rendezvous import Rendezvous
from trireme.keras._hooks import refuse_separate_models_under_horovod

_BINDINGS = ("horovod.torch", "horovod.tensorflow")


class HorovodBackend(NewProcessBackend):
    keeps = "Horovod keeps the connections of this attempt"

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._rendezvous: Rendezvous | None = None

    def on_start(self, context: TrainContext, session: Any) -> None:
        if context._gpus:
            _check_nccl(context)
        prefix = f"horovod/{context._attempt}"
        self._rendezvous = Rendezvous(session, prefix)
        across = _across(context, session, prefix, self.config.timeout_s)
        os.environ.update(self._variables(context, across, self._rendezvous.port))
        after_import("horovod.common.basics", lambda module: check_group(module, context))
        for module in ("horovod.keras", "horovod.tensorflow.keras"):
            after_import(module, refuse_keras_3)
        refuse_separate_models_under_horovod(context)
        after_import("horovod.common.elastic", continue_from_checkpoints)
        session.set_collective_timeout(self.config.timeout_s)

    def on_shutdown(self, context: TrainContext, session: Any) -> None:
        for name in _BINDINGS:
            if (binding := sys.modules.get(name)) is not None and binding.is_initialized():
                binding.shutdown()
        if self._rendezvous is not None:
            self._rendezvous.close()

    def _variables(self, context: TrainContext, across: dict[str, int], port: int) -> dict[str, str]:
        """As horovodrun sets them."""
        nics = self.config.nics or _interfaces_with(node_address(context))
        numbers = {
            "RANK": context.get_world_rank(),
            "SIZE": context.get_world_size(),
            "LOCAL_RANK": context.get_local_rank(),
            "LOCAL_SIZE": context.get_local_world_size(),
            **across,
            "GLOO_RENDEZVOUS_PORT": port,
            "GLOO_TIMEOUT_SECONDS": int(self.config.timeout_s),
        }
        texts = {
            "GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
            "CONTROLLER": "gloo",
            "CPU_OPERATIONS": "gloo",
            "HOSTNAME": f"node{context.get_node_rank()}",  # only compared
            **({"GLOO_IFACE": nics[0]} if nics else {}),
            **({"LOG_LEVEL": "debug"} if self.config.verbose > 1 else {}),
        }
        return {f"HOROVOD_{name}": str(value) for name, value in {**numbers, **texts}.items()}


def _across(context: TrainContext, session: Any, prefix: str, timeout_s: float) -> dict[str, int]:
    """The machines that have a worker with this local rank, and the place of this one among them."""
    node, local = context.get_node_rank(), context.get_local_rank()
    if local == 0:
        session.store_set(f"{prefix}/workers/{node}", str(context.get_local_world_size()).encode())
    keys = [f"{prefix}/workers/{each}" for each in range(context._num_nodes)]
    having = [each for each, size in enumerate(session.store_multi_get(keys, timeout_s)) if int(size) > local]
    return {"CROSS_RANK": having.index(node), "CROSS_SIZE": len(having)}


def _interfaces_with(address: str) -> list[str]:
    """Gloo would take the interface of the host's name, which is often the loopback device."""
    import psutil  # Horovod needs it too

    found = address if ":" in address else socket.gethostbyname(address)
    return [name for name, own in psutil.net_if_addrs().items() if any(each.address == found for each in own)]


def _check_nccl(context: TrainContext) -> None:
    from horovod.common.util import nccl_built

    if not nccl_built():
        raise RuntimeError(
            f"this worker holds GPU {', '.join(context._gpus)}, and this Horovod was built without support for GPUs: "
            "build it with HOROVOD_GPU_OPERATIONS=NCCL, or train with TorchTrainer or TensorflowTrainer"
        )
