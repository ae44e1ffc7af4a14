"""Process groups that fail like NCCL, on the CPU; see tests/cpp/nccl_like.h."""

from __future__ import annotations

import importlib.util
import os
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from trireme.torch import TorchConfig

_BUILD = Path(os.environ.get("TRIREME_BUILD_DIR", Path(__file__).resolve().parents[2] / "build/release"))
_FOUND = sorted((_BUILD / "tests").glob("nccl_like*.so"))
MODULE = _FOUND[0] if _FOUND else None


@dataclass
class LikeNccl(TorchConfig):
    """For TorchTrainer(torch_config=...). Workers are kept as those with a GPU are.

    watchdog: ends the process with SIGABRT when an operation takes longer than timeout_s.
    abort_hangs: whether abort() never returns, on rank 0.
    """

    watchdog: bool = False
    abort_hangs: bool = False
    module: str = str(MODULE)

    @property
    def backend_cls(self) -> type[Any]:
        from trireme.torch._backend import TorchBackend

        class LikeNcclBackend(TorchBackend):
            def on_start(self, context: Any, session: Any) -> None:
                config = self.config
                register(config.module, config.watchdog, config.abort_hangs and context.get_world_rank() == 0)
                config.backend = "nccl_like"
                super().on_start(context, session)

            def holds(self, context: Any) -> str:
                return "a CUDA context"

        return LikeNcclBackend


def register(module: str, watchdog: bool = False, abort_hangs: bool = False) -> None:
    """Adds the backend "nccl_like" to torch.distributed in this process, once."""
    import torch.distributed as dist

    create = partial(_create, module, watchdog, abort_hangs)
    if hasattr(dist.Backend, "NCCL_LIKE"):  # a process that is kept
        plugin = dist.Backend._plugins["NCCL_LIKE"]
        dist.Backend._plugins["NCCL_LIKE"] = plugin._replace(creator_fn=create)
    else:
        dist.Backend.register_backend("nccl_like", create, devices=["cpu"])


def _create(module: str, watchdog: bool, abort_hangs: bool, store: Any, rank: int, size: int, timeout: Any) -> Any:
    spec = importlib.util.spec_from_file_location("nccl_like", module)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    assert isinstance(timeout, timedelta)
    return loaded.create(store, rank, size, timeout, watchdog, abort_hangs)
