"""The environment of a script written for torchrun."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from trireme._after_import import after_import
from trireme._context import TrainContext
from trireme._flight_recorder import keep_flight_records
from trireme._gloo_threads import guard_destroy, wait_for_gloo_threads
from trireme._process_group import abort_collectives, abort_process_group, end_process_group
from trireme._rank_variables import master_variables, one_host, rank_variables
from trireme.backend import Backend, BackendConfig

_TIMEOUT_S = 1800.0  # torch's default


@dataclass
class LaunchConfig(BackendConfig):
    max_restarts: int = 0
    share_cuda_visible_devices: bool = True  # as under torchrun: scripts use `cuda:LOCAL_RANK`

    @property
    def backend_cls(self) -> type[Backend]:
        return LaunchBackend


class LaunchBackend(Backend):
    """Does not need torch. If the script imports it, its `env://` rendezvous uses the run's own connection."""

    def on_start(self, context: TrainContext, session: Any) -> None:
        prefix = f"launch/{context._attempt}/"
        variables = {
            **rank_variables(context),
            **_torchelastic_variables(context, self.config.max_restarts),
            **master_variables(context, session, prefix, _TIMEOUT_S),
        }
        os.environ.update(variables)
        if one_host(context):
            os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # the host's own name may not resolve
        os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1")
        keep_flight_records(context)

        def take_over(module: Any) -> None:
            from trireme.torch._launch import take_env_rendezvous

            take_env_rendezvous(module, session, prefix)

        def prepare(_: Any) -> None:
            from trireme.torch._frameworks import prepare_frameworks_of_script

            prepare_frameworks_of_script(context)

        after_import("torch.distributed.rendezvous", take_over)
        # Accelerate and DeepSpeed need torch first.
        after_import("torch", prepare)
        after_import("torch.distributed", guard_destroy)

    def on_shutdown(self, context: TrainContext, session: Any) -> None:
        wait_for_gloo_threads()
        end_process_group()

    def holds(self, context: TrainContext) -> str:
        return ""  # scripts written for torchrun expect every attempt to start in a new process

    def on_cancel(self, context: TrainContext, session: Any) -> None:
        abort_collectives()

    def on_interrupt(self, context: TrainContext, session: Any) -> None:
        abort_process_group()


def _torchelastic_variables(context: TrainContext, max_restarts: int) -> dict[str, str]:
    return {
        "GROUP_RANK": str(context.get_node_rank()),
        "GROUP_WORLD_SIZE": str(context._num_nodes),
        "ROLE_NAME": "default",
        "ROLE_RANK": str(context.get_world_rank()),
        "ROLE_WORLD_SIZE": str(context.get_world_size()),
        "TORCHELASTIC_RESTART_COUNT": str(context._attempt),
        "TORCHELASTIC_MAX_RESTARTS": str(max_restarts),
        "TORCHELASTIC_RUN_ID": context._run_id,
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }
