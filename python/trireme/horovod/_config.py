from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import ClassVar

from trireme._config import ConfigError
from trireme.backend import Backend, BackendConfig

# Fields for Ray's way of starting Horovod.
_UNUSED = {
    "key": "no ssh is used",
    "ssh_port": "no ssh is used",
    "ssh_identity_file": "no ssh is used",
    "ssh_str": "no ssh is used",
    "placement_group_timeout_s": "resources that are not available are an error at once",
}


@dataclass
class HorovodConfig(BackendConfig):
    """The setup of Horovod on the workers. Ray Train's fields for ssh have no effect.

    nics: names of network interfaces. Gloo uses the first one; by default the loopback device if all workers are on one
        machine, otherwise the interface of the machine's address.
    verbose: 2 logs Horovod's messages for debugging.
    timeout_s: how long workers wait for each other in hvd.init(), and in a collective operation, in seconds.
    """

    nics: Iterable[str] | None = None
    verbose: int = 1
    key: str | None = None
    ssh_port: int | None = None
    ssh_identity_file: str | None = None
    ssh_str: str | None = None
    timeout_s: float = 300
    placement_group_timeout_s: float = 100

    preload: ClassVar[tuple[str, ...]] = ("horovod", "trireme.horovod._backend")

    def __post_init__(self) -> None:
        if isinstance(self.nics, str):
            raise ConfigError(f"HorovodConfig.nics: expected a list of names, got {self.nics!r}; use [{self.nics!r}]")
        # Ordered, because the first one is used.
        self.nics = None if self.nics is None else list(self.nics)
        number = isinstance(self.timeout_s, (int, float)) and not isinstance(self.timeout_s, bool)
        if not number or not self.timeout_s >= 1:
            raise ConfigError(f"HorovodConfig.timeout_s: expected 1 second or more, got {self.timeout_s!r}")
        if not isinstance(self.verbose, int):
            raise ConfigError(f"HorovodConfig.verbose: expected int, got {self.verbose!r}")
        standard = {each.name: each.default for each in fields(self)}
        for name, why in _UNUSED.items():
            if getattr(self, name) != standard[name]:
                warnings.warn(f"HorovodConfig({name}=...) has no effect: {why}", stacklevel=3)

    @property
    def backend_cls(self) -> type[Backend]:
        from trireme.horovod._backend import HorovodBackend

        return HorovodBackend
