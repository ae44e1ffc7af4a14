from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trireme._config import ConfigError
from trireme.backend import Backend, BackendConfig

_INIT_METHODS = ("env", "tcp")


@dataclass
class TorchConfig(BackendConfig):
    """The setup of torch.distributed.

    backend: any backend of torch; by default "nccl" if every worker has at least one GPU, otherwise "gloo".
    init_method: "env" or "tcp"; the rendezvous uses the run's own connection in both cases.
    timeout_s: time limit of a collective operation, in seconds.
    share_cuda_visible_devices: True: each worker sees the GPUs of all workers on its node, and `cuda:LOCAL_RANK` is its
        own. False, and always with fractions of GPUs and MIG devices: it sees only its own GPUs, from `cuda:0`.
    """

    backend: str | None = None
    init_method: str = "env"
    timeout_s: float = 1800
    share_cuda_visible_devices: bool = True

    preload: ClassVar[tuple[str, ...]] = ("torch",)

    def __post_init__(self) -> None:
        if self.backend is not None and not isinstance(self.backend, str):
            raise ConfigError(f"TorchConfig.backend: expected str | None, got {self.backend!r} ('gloo' or 'nccl')")
        if self.init_method not in _INIT_METHODS:
            raise ConfigError(f"TorchConfig.init_method: {self.init_method!r} is unknown; use 'env' or 'tcp'")
        number = isinstance(self.timeout_s, (int, float)) and not isinstance(self.timeout_s, bool)
        if not number or not self.timeout_s > 0:
            raise ConfigError(f"TorchConfig.timeout_s: expected a positive number of seconds, got {self.timeout_s!r}")
        if not isinstance(self.share_cuda_visible_devices, bool):
            shared = self.share_cuda_visible_devices
            raise ConfigError(f"TorchConfig.share_cuda_visible_devices: expected bool, got {shared!r}")

    @property
    def backend_cls(self) -> type[Backend]:
        from trireme.torch._backend import TorchBackend

        return TorchBackend
