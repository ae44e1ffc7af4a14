"""Sets up torch.distributed on a worker before the training function runs."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from trireme._context import TrainContext
from trireme._flight_recorder import keep_flight_records
from trireme._gloo_threads import wait_for_gloo_threads
from trireme._process_group import abort_collectives, abort_process_group, end_process_group
from trireme._rank_variables import master_variables, one_host, rank_variables
from trireme.backend import Backend
from trireme.torch._device import devices_of
from trireme.torch._frameworks import prepare_frameworks
from trireme.torch._store import ControlStore

# Libraries that keep the process groups of an attempt in globals.
_STATEFUL = ("accelerate", "deepspeed", "lightning", "pytorch_lightning", "megatron")


class TorchBackend(Backend):
    def on_start(self, context: TrainContext, session: Any) -> None:
        if not dist.is_available():
            raise RuntimeError("this torch was built without torch.distributed; install a build that includes it")
        timeout = timedelta(seconds=self.config.timeout_s)
        prefix = f"torch/{context._attempt}/"
        store = ControlStore(session, prefix, timeout)
        device = devices_of(context)[0]
        os.environ.update(rank_variables(context))
        os.environ.update(master_variables(context, session, prefix, self.config.timeout_s))
        _set_defaults(context, device)
        prepare_frameworks(context, device)
        keep_flight_records(context)
        session.set_collective_timeout(self.config.timeout_s)
        if device.type == "cuda":
            torch.cuda.set_device(device)
        dist.init_process_group(
            backend=self.config.backend or _standard_backend(context, device),
            store=store,
            rank=context.get_world_rank(),
            world_size=context.get_world_size(),
            timeout=timeout,
        )
        # A short function may return and close its connections while another rank is still connecting.
        session.barrier()

    def on_shutdown(self, context: TrainContext, session: Any) -> None:
        wait_for_gloo_threads()
        end_process_group()

    def objection(self) -> str:
        loaded = [name for name in _STATEFUL if name in sys.modules]
        verb = "keeps" if len(loaded) == 1 else "keep"
        return f"{' and '.join(loaded)} {verb} process groups of this attempt in globals" if loaded else ""

    def on_cancel(self, context: TrainContext, session: Any) -> None:
        abort_collectives()

    def on_interrupt(self, context: TrainContext, session: Any) -> None:
        abort_process_group()


def _standard_backend(context: TrainContext, device: torch.device) -> str:
    # NCCL does not allow two ranks on one device, which a fraction of a GPU and MIG devices imply.
    return "nccl" if device.type == "cuda" and context._whole_gpus and dist.is_nccl_available() else "gloo"


def _set_defaults(context: TrainContext, device: torch.device) -> None:
    """Keeps values that the user has set."""
    defaults = {"ACCELERATE_TORCH_DEVICE": str(device), "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}
    if one_host(context):
        defaults["GLOO_SOCKET_IFNAME"] = "lo"  # the host's own name may not resolve
    for name, value in defaults.items():
        os.environ.setdefault(name, value)
