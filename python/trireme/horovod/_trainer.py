from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, Unpack

from trireme._trainer import DataParallelTrainer, TrainerOptions, backend_config
from trireme.horovod._config import HorovodConfig

_TESTED = "0.28."


class HorovodTrainer(DataParallelTrainer):
    """Runs a Horovod training function, for PyTorch or TensorFlow, on many workers. The function calls hvd.init(),
    which finds the other workers without ssh, mpirun or horovodrun.

    options: of DataParallelTrainer.
    """

    def __init__(
        self,
        train_loop_per_worker: Callable[..., Any],
        *,
        horovod_config: HorovodConfig | None = None,
        **options: Unpack[TrainerOptions],
    ) -> None:
        _require_horovod()
        config = backend_config("horovod_config", horovod_config, HorovodConfig)
        super().__init__(train_loop_per_worker, backend_config=config, **options)


def _require_horovod() -> None:
    """Not require_package(): pip cannot build Horovod for recent versions of torch and TensorFlow."""
    if find_spec("horovod") is None:
        raise ModuleNotFoundError(
            "trireme.horovod needs the package horovod, which is not installed: tools/horovod_wheel.sh in Trireme's "
            "repository builds a wheel for your torch and TensorFlow (docs/horovod.md)"
        )
    if not version("horovod").startswith(_TESTED):
        warnings.warn(
            f"trireme.horovod was tested with horovod {_TESTED}*, and {version('horovod')} is installed", stacklevel=3
        )
