from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from trireme._config import ConfigError
from trireme._extras import require_package
from trireme.backend import Backend, BackendConfig
from trireme.tensorflow._cluster import check_roles


@dataclass
class TensorflowConfig(BackendConfig):
    """The setup of TensorFlow's cluster.

    roles: number of workers with each role of TF_CONFIG: "chief" (0 or 1), "worker", "ps". Ranks get roles in this
        order. The workers without a role are "worker". Default: all of them, as for MultiWorkerMirroredStrategy.
        With "ps", ranks of the roles "worker" and "ps" run servers and only the chief runs the training function, as
        for ParameterServerStrategy.
    timeout_s: how long a worker waits for the addresses of the others, in seconds.
    """

    roles: dict[str, int] | None = None
    timeout_s: float = 1800

    preload: ClassVar[tuple[str, ...]] = ("tensorflow", "trireme.tensorflow._backend")

    def __post_init__(self) -> None:
        check_roles(self.roles)
        number = isinstance(self.timeout_s, (int, float)) and not isinstance(self.timeout_s, bool)
        if not number or not self.timeout_s > 0:
            raise ConfigError(
                f"TensorflowConfig.timeout_s: expected a positive number of seconds, got {self.timeout_s!r}"
            )

    @property
    def backend_cls(self) -> type[Backend]:
        from trireme.tensorflow._backend import TensorflowBackend

        return TensorflowBackend


def require_tensorflow() -> None:
    require_package("tensorflow", tested=("2.21.",))
