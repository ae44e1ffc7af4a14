"""PyTorch: a trainer whose workers find their process group ready. Importing this does not import torch."""

from trireme._runtime import warm_up
from trireme.torch._config import TorchConfig
from trireme.torch._device import get_device, get_devices
from trireme.torch._trainer import TorchTrainer

__all__ = ["TorchConfig", "TorchTrainer", "get_device", "get_devices"]

# The warm process imports torch while the user's script still sets up.
warm_up(list(TorchConfig.preload))
