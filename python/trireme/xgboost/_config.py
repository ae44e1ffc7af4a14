from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from trireme._config import ConfigError
from trireme.backend import Backend, BackendConfig


@dataclass
class XGBoostConfig(BackendConfig):
    """The setup of XGBoost's communicator.

    xgboost_communicator: only "rabit".
    timeout_s: time limit of a collective operation, in seconds.
    """

    xgboost_communicator: str = "rabit"
    timeout_s: float = 1800

    # Set by a trainer with its own loop: the workers run no code of the user.
    _lean: bool = field(default=False, init=False, repr=False, compare=False)

    preload: ClassVar[tuple[str, ...]] = ("xgboost", "trireme.xgboost._loop")

    def __post_init__(self) -> None:
        if self.xgboost_communicator != "rabit":
            raise NotImplementedError(
                f"XGBoostConfig.xgboost_communicator: {self.xgboost_communicator!r} is not supported; use 'rabit'"
            )
        number = isinstance(self.timeout_s, (int, float)) and not isinstance(self.timeout_s, bool)
        if not number or not self.timeout_s >= 1:
            raise ConfigError(f"XGBoostConfig.timeout_s: expected 1 second or more, got {self.timeout_s!r}")

    @property
    def backend_cls(self) -> type[Backend]:
        from trireme.xgboost._backend import XGBoostBackend

        return XGBoostBackend
