"""Backend and BackendConfig as users of Ray subclass them: hooks with a worker group.

In Ray the hooks run in the controller, which asks every worker to execute functions. Here rank 0 runs them: the others
wait for the functions that it sends through the run's own store.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from trireme import _ship
from trireme import backend as ours
from trireme._context import TrainContext
from trireme.compat.ray._refs import ReadyRef

_PATIENCE_S = 1800.0


class BackendConfig(ours.BackendConfig):
    @property
    def backend_cls(self) -> type[Any]:
        return Backend

    @property
    def train_func_context(self) -> Callable[[], AbstractContextManager[Any]]:
        return nullcontext

    @property
    def framework(self) -> Any:
        return None

    def to_dict(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if not name.startswith("_")}


class Backend:
    """Called on rank 0 of every attempt, in this order."""

    share_cuda_visible_devices: bool = False
    has_replica_groups: bool = False

    def on_start(self, worker_group: WorkerGroup, backend_config: Any) -> None:
        pass

    def on_training_start(self, worker_group: WorkerGroup, backend_config: Any) -> None:
        pass

    def on_shutdown(self, worker_group: WorkerGroup, backend_config: Any) -> None:
        pass

    def on_failure(self, worker_group: WorkerGroup, failed_worker_indexes: list[int], backend_config: Any) -> None:
        pass


class WorkerGroup:
    """The workers of an attempt. `execute` runs a function on all of them and returns the results by rank."""

    def __init__(self, context: TrainContext, core: Any, user: str = "backend") -> None:
        self._context = context
        self._core = core
        self._user = user
        self._calls = 0

    def __len__(self) -> int:
        return self._context.get_world_size()

    def get_resources_per_worker(self) -> dict[str, float]:
        return self._context.get_trial_resources()

    def execute(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> list[Any]:
        return self._execute(list(range(len(self))), function, args, kwargs)

    def execute_single(self, rank: int, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self._execute([rank], function, args, kwargs)[0]

    def execute_async(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> list[ReadyRef]:
        """The functions have run when this returns: ray.get() of the references returns at once."""
        return [ReadyRef(value) for value in self.execute(function, *args, **kwargs)]

    def execute_single_async(self, rank: int, function: Callable[..., Any], *args: Any, **kwargs: Any) -> ReadyRef:
        return ReadyRef(self.execute_single(rank, function, *args, **kwargs))

    def _execute(
        self, ranks: list[int], function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> list[Any]:
        self._send((ranks, function, args, kwargs))
        results = []
        for rank in ranks:
            if rank == 0:
                results.append(function(*args, **kwargs))
                continue
            succeeded, value = pickle.loads(self._core.store_get(self._key(rank), _PATIENCE_S))
            if not succeeded:
                raise value
            results.append(value)
        self._calls += 1
        return results

    def run_hooks(self, hooks: Sequence[Callable[[WorkerGroup], Any]]) -> None:
        """On rank 0; the other ranks execute what the hooks ask for."""
        if self._context.get_world_rank() != 0:
            self.serve()
            return
        for hook in hooks:
            hook(self)
        self.finish()

    def finish(self) -> None:
        """Lets the other ranks leave serve()."""
        self._send(None)
        self._calls += 1

    def serve(self) -> None:
        """On the other ranks: executes what rank 0 sends, until it calls finish()."""
        rank = self._context.get_world_rank()
        while True:
            sent = pickle.loads(self._core.store_get(self._key("call"), _PATIENCE_S))
            if sent is None:
                self._calls += 1
                return
            ranks, function, args, kwargs = sent
            if rank in ranks:
                try:
                    answer = (True, function(*args, **kwargs))
                except Exception as error:
                    answer = (False, error)
                self._core.store_set(self._key(rank), _ship.dumps(answer))
            self._calls += 1

    def _send(self, call: Any) -> None:
        if len(self) > 1:
            self._core.store_set(self._key("call"), _ship.dumps(call))

    def _key(self, who: str | int) -> str:
        return f"ray_{self._user}/{self._context._attempt}/{self._calls}/{who}"


class WorkerGroupBackend(ours.Backend):
    """Runs the hooks of a Backend of Ray around the training function."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._asked = config.asked
        self._theirs = self._asked.backend_cls()
        self._group: WorkerGroup | None = None

    def on_start(self, context: TrainContext, session: Any) -> None:
        self._group = WorkerGroup(context, session)
        hooks = (self._theirs.on_start, self._theirs.on_training_start)
        self._group.run_hooks([partial(self._call, hook) for hook in hooks])

    def on_shutdown(self, context: TrainContext, session: Any) -> None:
        assert self._group is not None
        self._group.run_hooks([partial(self._call, self._theirs.on_shutdown)])

    def _call(self, hook: Callable[..., Any], group: WorkerGroup) -> None:
        hook(group, self._asked)

    def objection(self) -> str:
        return "a Backend written for Ray expects new processes"


class WorkerGroupBackendConfig(ours.BackendConfig):
    """Around a BackendConfig of the script."""

    def __init__(self, asked: Any) -> None:
        self.asked = asked
        self.share_cuda_visible_devices = bool(asked.backend_cls.share_cuda_visible_devices)

    @property
    def backend_cls(self) -> type[ours.Backend]:
        return WorkerGroupBackend


def served(config: ours.BackendConfig) -> ours.BackendConfig:
    """The configuration for Trireme: a Backend of Ray gets its worker group."""
    return WorkerGroupBackendConfig(config) if issubclass(config.backend_cls, Backend) else config
