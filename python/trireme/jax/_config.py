from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trireme._config import ConfigError
from trireme.backend import Backend, BackendConfig

TESTED = ("0.10.",)


@dataclass
class JaxConfig(BackendConfig):
    """The setup of JAX on the workers.

    use_tpu, use_gpu: the devices to compute on; by default GPUs if the workers have some, otherwise CPUs. JAX_PLATFORMS
        in the environment replaces this choice.
    timeout_s: how long workers wait for each other at the start, in seconds.
    heartbeat_timeout_s: after this time without a sign of life, JAX considers a worker lost. Trireme usually notices it
        within a second.
    num_cpu_devices: number of CPU devices of every worker; default: that of JAX, 1.
    """

    use_tpu: bool = False
    use_gpu: bool = False
    timeout_s: float = 300
    heartbeat_timeout_s: float = 100
    num_cpu_devices: int | None = None

    preload: ClassVar[tuple[str, ...]] = ("jax", "trireme.jax._backend")
    _compiled_folder = ""  # set by fit()

    def __post_init__(self) -> None:
        for name in ("use_tpu", "use_gpu"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"JaxConfig.{name}: expected bool, got {getattr(self, name)!r}")
        if self.use_tpu and self.use_gpu:
            raise ConfigError("JaxConfig(use_tpu=True, use_gpu=True): workers use either TPUs or GPUs; set one of them")
        for name in ("timeout_s", "heartbeat_timeout_s"):
            value = getattr(self, name)
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not value >= 1:
                raise ConfigError(f"JaxConfig.{name}: expected 1 second or more, got {value!r}")
        count = self.num_cpu_devices
        if count is not None and (not isinstance(count, int) or isinstance(count, bool) or count < 1):
            raise ConfigError(f"JaxConfig.num_cpu_devices: expected a positive integer, got {count!r}")

    @property
    def backend_cls(self) -> type[Backend]:
        from trireme.jax._backend import JaxBackend

        return JaxBackend
