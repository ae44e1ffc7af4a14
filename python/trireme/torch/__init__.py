"""PyTorch: a trainer that sets up the process group, and functions that prepare models and data.

Importing this module does not import torch. Accessing a function that needs torch does.
"""

from typing import TYPE_CHECKING

from trireme._late_names import late_names
from trireme._preload import frameworks_of_main
from trireme._runtime import warm_up
from trireme.torch._config import TorchConfig
from trireme.torch._device import get_device, get_devices
from trireme.torch._trainer import TorchTrainer

if TYPE_CHECKING:
    from trireme.torch._checkpoint import TorchCheckpoint
    from trireme.torch._loader import prepare_data_loader
    from trireme.torch._mesh import get_device_mesh
    from trireme.torch._model import prepare_model
    from trireme.torch._precision import accelerate, backward, prepare_optimizer
    from trireme.torch._reproducible import enable_reproducibility
    from trireme.torch._sharded import load_sharded, save_sharded

__all__ = [
    "TorchCheckpoint",
    "TorchConfig",
    "TorchTrainer",
    "accelerate",
    "backward",
    "enable_reproducibility",
    "get_device",
    "get_device_mesh",
    "get_devices",
    "load_sharded",
    "prepare_data_loader",
    "prepare_model",
    "prepare_optimizer",
    "save_sharded",
]

# These import torch.
__getattr__, __dir__ = late_names(
    __name__,
    {
        "TorchCheckpoint": "_checkpoint",
        "accelerate": "_precision",
        "backward": "_precision",
        "enable_reproducibility": "_reproducible",
        "get_device_mesh": "_mesh",
        "load_sharded": "_sharded",
        "prepare_data_loader": "_loader",
        "prepare_model": "_model",
        "prepare_optimizer": "_precision",
        "save_sharded": "_sharded",
    },
)

# The warm process imports torch, and the frameworks that the script names, in parallel with the setup of the script.
warm_up([*TorchConfig.preload, *frameworks_of_main()])
