"""Sets TF_CONFIG on a worker before the training function runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from trireme._context import TrainContext
from trireme._ports import HeldPort
from trireme._rank_variables import node_address
from trireme.backend import NewProcessBackend
from trireme.keras._hooks import prepare_keras
from trireme.tensorflow._cluster import Task, has_servers, tasks, tf_config
from trireme.tensorflow._group import Group


class TensorflowBackend(NewProcessBackend):
    keeps = "TensorFlow keeps the cluster of this attempt"

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._port: HeldPort | None = None
        self._tasks: list[Task] = []
        self._group: Group | None = None

    def on_start(self, context: TrainContext, session: Any) -> None:
        _check_gpus(context)
        if given := os.environ.get("TF_CONFIG"):
            raise RuntimeError(
                f"TF_CONFIG is already set on this worker, to {given}: TensorflowTrainer sets it to the addresses of "
                "the run's own cluster; remove it from the worker's environment"
            )
        rank, world = context.get_world_rank(), context.get_world_size()
        self._tasks = tasks(self.config.roles, world)
        # Bound until the process ends: TensorFlow's server binds the port a second time when it starts.
        self._port = HeldPort()
        os.environ["TF_GRPC_REUSE_PORT"] = "true"
        own = f"{node_address(context)}:{self._port.port}"
        addresses = _exchanged(own, context, session, self.config)
        os.environ["TF_CONFIG"] = tf_config(self._tasks, addresses, rank)
        _limit_threads()
        self._group = Group(context, has_servers(self.config.roles))
        self._group.watch()
        prepare_keras(context, "tensorflow")

    def training_function(
        self, context: TrainContext, session: Any, function: Callable[..., Any]
    ) -> Callable[..., Any]:
        if not has_servers(self.config.roles):
            return function
        from trireme.tensorflow._servers import chief_function, server_function

        if self._tasks[context.get_world_rank()].role == "chief":
            return chief_function(function, context, session)
        return server_function(context, session)

    def on_shutdown(self, context: TrainContext, session: Any) -> None:
        if self._group is not None:
            self._group.warn_if_never_used()

    def on_cancel(self, context: TrainContext, session: Any) -> None:
        abort_collectives()


def _exchanged(mine: str, context: TrainContext, session: Any, config: Any) -> list[str]:
    prefix = f"tensorflow/{context._attempt}/"
    session.store_set(f"{prefix}{context.get_world_rank()}", mine.encode())
    keys = [f"{prefix}{rank}" for rank in range(context.get_world_size())]
    return [each.decode() for each in session.store_multi_get(keys, float(config.timeout_s))]


def _check_gpus(context: TrainContext) -> None:
    """Otherwise TensorFlow would train on the CPU without an error."""
    if context._gpus and not tf.config.list_physical_devices("GPU"):
        raise RuntimeError(
            f"this worker has GPU {', '.join(context._gpus)} (ScalingConfig(use_gpu=True)), and TensorFlow "
            f"{tf.__version__} finds no GPU: install a build with CUDA (pip install 'tensorflow[and-cuda]') and check "
            "the driver with nvidia-smi, or set use_gpu=False"
        )


def _limit_threads() -> None:
    """TensorFlow's own default is one thread per core in every worker."""
    if threads := os.environ.get("OMP_NUM_THREADS"):
        os.environ.setdefault("TF_NUM_INTRAOP_THREADS", threads)


def abort_collectives() -> None:
    """Ends the collectives that threads of this process wait in."""
    module = sys.modules.get("tensorflow.python.eager.context")
    made = getattr(module, "_context", None)
    if made is not None and getattr(made, "_context_handle", None) is not None:
        made.abort_collective_ops(tf.errors.UNAVAILABLE, "the training function is interrupted for the next attempt")
