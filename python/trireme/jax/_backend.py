"""Sets up jax.distributed on a worker before the training function runs."""

from __future__ import annotations

import atexit
import os
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
from jax._src import compiler, distributed, xla_bridge

from trireme._context import TrainContext
from trireme._patches import wrap
from trireme._ports import HeldPort, address_to_bind
from trireme._rank_variables import node_address
from trireme._session import current_session
from trireme.backend import NewProcessBackend
from trireme.jax._compiled import keep_compiled
from trireme.jax._config import JaxConfig
from trireme.keras._hooks import prepare_keras

_NO_GPU = 'install a build of JAX for this GPU (pip install "jax[cuda13]"), or check the driver'
_BACKENDS = {"cuda": "gpu", "rocm": "gpu", "gpu": "gpu", "tpu": "tpu"}
_NO_TPU = 'install libtpu (pip install "jax[tpu]"), and run the workers on machines with TPUs'


class JaxBackend(NewProcessBackend):
    keeps = "JAX keeps the devices of this attempt"

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        # Other versions of JAX may not have the function that shows it.
        self._spans_workers = not hasattr(compiler, "compile_or_get_cached")

    def on_start(self, context: TrainContext, session: Any) -> None:
        config: JaxConfig = self.config
        platforms = _choose_devices(config, context)
        keep_compiled(config._compiled_folder, platforms, context)
        _initialize(config, context, session)
        _create_devices(platforms, context)
        _check_group(context)
        _replace_functions_of_jax(context)
        if not self._spans_workers:
            wrap(compiler, "compile_or_get_cached", self._noting_devices)
        prepare_keras(context, "jax")

    def _noting_devices(
        self, original: Any, backend: Any, computation: Any, devices: Any, *arguments: Any, **options: Any
    ) -> Any:
        self._spans_workers |= len({device.process_index for device in devices.flat}) > 1
        return original(backend, computation, devices, *arguments, **options)

    def on_shutdown(self, context: TrainContext, session: Any) -> None:
        if context.get_world_size() > 1 and not self._spans_workers and context.get_world_rank() == 0:
            warnings.warn(
                f"no computation has spanned several workers, so each of the {context.get_world_size()} workers worked "
                "alone; to train one model, place parameters and batches on a jax.sharding.Mesh of jax.devices(), for "
                "example with jax.make_array_from_process_local_data()",
                stacklevel=2,
            )
        # At the end of the process, which all ranks reach at the same time: until then the process of rank 0 serves
        # those that have not returned yet.
        atexit.register(jax.distributed.shutdown)


def _choose_devices(config: JaxConfig, context: TrainContext) -> str:
    """JAX has read its environment variables when it was imported, perhaps in the warm process."""
    if config.use_tpu and context.get_local_world_size() > 1:
        raise RuntimeError(
            f"JaxConfig(use_tpu=True): {context.get_local_world_size()} workers run on this machine, and JAX "
            "gives all TPUs of a machine to one process: run one worker on each machine"
        )
    platforms = os.environ.get("JAX_PLATFORMS") or _standard_platforms(config, context)
    os.environ["JAX_PLATFORMS"] = platforms
    jax.config.update("jax_platforms", platforms)
    # _PreemptionSync replaces it. It would start a thread, and take over SIGTERM for a moment.
    jax.config.update("jax_enable_preemption_service", False)
    if config.num_cpu_devices is not None:
        jax.config.update("jax_num_cpu_devices", config.num_cpu_devices)
    return platforms


def _standard_platforms(config: JaxConfig, context: TrainContext) -> str:
    """The first one is JAX's default."""
    if config.use_tpu:
        return "tpu,cpu"
    return "cuda,cpu" if context._gpus else "cpu"


def _initialize(config: JaxConfig, context: TrainContext, session: Any) -> None:
    if xla_bridge.backends_are_initialized():
        raise RuntimeError(
            "JAX was used before the training function started, so this worker's devices cannot be joined with those "
            "of other workers: pass NumPy arrays in train_loop_config, and move code that computes with JAX when a "
            "module is imported into the training function"
        )
    rank = context.get_world_rank()
    key = f"jax/{context._attempt}/coordinator"
    held: HeldPort | None = None
    bind = None
    if rank == 0:
        held = HeldPort(address_to_bind(context))
        bind = f"{address_to_bind(context) or '[::]'}:{held.port}"
        address = f"{node_address(context)}:{held.port}"
        # Not earlier: a client that the coordinator does not answer tries again after a second.
        _after_start_of_coordinator(lambda: session.store_set(key, address.encode()))
    else:
        address = session.store_get(key, config.timeout_s).decode()
    try:
        jax.distributed.initialize(
            coordinator_address=address,
            num_processes=context.get_world_size(),
            process_id=rank,
            cluster_detection_method="deactivate",
            initialization_timeout=int(config.timeout_s),
            heartbeat_timeout_seconds=int(config.heartbeat_timeout_s),
            coordinator_bind_address=bind,
        )
    finally:
        if held is not None:
            held.release()


def _after_start_of_coordinator(action: Callable[[], None]) -> None:
    def get_service(original: Any, *arguments: Any, **options: Any) -> Any:
        service = original(*arguments, **options)
        action()
        return service

    wrap(distributed._jax, "get_distributed_runtime_service", get_service)


def _create_devices(platforms: str, context: TrainContext) -> None:
    """JAX takes the next platform of the list if it has no library for the first one."""
    wanted = _BACKENDS.get(platforms.split(",")[0])
    try:
        found = jax.default_backend()
        if wanted in (None, found):
            return
        why = f"it computes on {found.upper()}s instead"
    except RuntimeError as error:
        why = str(error)
    holds = f"GPU {', '.join(context._gpus)}" if context._gpus else "no GPU"
    fix = _NO_TPU if wanted == "tpu" else _NO_GPU if context._gpus else "check JAX_PLATFORMS"
    raise RuntimeError(
        f"JAX {jax.__version__} cannot use the devices {platforms!r}, and this worker holds {holds}: {why}; {fix}"
    )


def _check_group(context: TrainContext) -> None:
    found = jax.process_index(), jax.process_count()
    expected = context.get_world_rank(), context.get_world_size()
    if found != expected:
        raise RuntimeError(
            f"JAX has found process {found[0]} of {found[1]}, and this worker is rank {expected[0]} of {expected[1]}: "
            "every worker would train a model of its own; leave the environment of JAX's processes as it is"
        )


def _replace_functions_of_jax(context: TrainContext) -> None:
    """Scripts and libraries call them, and JAX's own would conflict with what Trireme has set up."""
    # A script may have imported jax.distributed.initialize() by name, so what it calls is replaced.
    distributed.xla_bridge = SimpleNamespace(backends_are_initialized=lambda: False)
    distributed.global_state.initialize = _already_initialized(context)
    # multihost_utils.reached_preemption_sync_point() and Orbax's managers ask it.
    distributed.global_state.preemption_sync_manager = _PreemptionSync()


def _already_initialized(context: TrainContext) -> Callable[..., None]:
    """jax.distributed.initialize() for scripts that call it themselves."""

    def initialize(
        coordinator_address: str | None = None,
        num_processes: int | None = None,
        process_id: int | None = None,
        *_: Any,
        **__: Any,
    ) -> None:
        asked = (num_processes, process_id)
        for value, own in zip(asked, (context.get_world_size(), context.get_world_rank()), strict=True):
            if value is not None and value != own:
                raise RuntimeError(
                    f"jax.distributed.initialize(num_processes={num_processes}, process_id={process_id}) does not "
                    f"match this worker, which is process {context.get_world_rank()} of {context.get_world_size()}: "
                    "JaxTrainer has initialized jax.distributed already; remove the call"
                )

    return initialize


class _PreemptionSync:
    """JAX asks in every step whether to save because of a preemption; this answers with Trireme's notice."""

    def __init__(self) -> None:
        self._answered: dict[str, Any] | None = None

    def reached_sync_point(self, step: int) -> bool:
        """True once for each notice, in the same step on all ranks: they ask together."""
        notice = current_session("reached_preemption_sync_point").preemption()
        reached = notice is not None and notice != self._answered
        self._answered = notice
        return reached

    def shutdown(self) -> None:
        """Called by jax.distributed.shutdown()."""
