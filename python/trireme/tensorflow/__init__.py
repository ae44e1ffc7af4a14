"""TensorFlow on many workers: TF_CONFIG on every worker, and clusters that form again after failures.

Importing this module does not import tensorflow. Accessing a class that needs it does.
"""

from typing import TYPE_CHECKING

from trireme._late_names import late_names
from trireme._preload import frameworks_of_main
from trireme._runtime import warm_up
from trireme.tensorflow._config import TensorflowConfig
from trireme.tensorflow._trainer import TensorflowTrainer

if TYPE_CHECKING:
    from trireme.tensorflow._checkpoint import TensorflowCheckpoint
    from trireme.tensorflow._shard import prepare_dataset_shard

__all__ = ["TensorflowCheckpoint", "TensorflowConfig", "TensorflowTrainer", "prepare_dataset_shard"]

# These import tensorflow.
__getattr__, __dir__ = late_names(
    __name__, {"TensorflowCheckpoint": "_checkpoint", "prepare_dataset_shard": "_shard"}, requires=("tensorflow",)
)

# The warm process imports tensorflow in parallel with the setup of the user's script.
warm_up(list(dict.fromkeys([*TensorflowConfig.preload, *frameworks_of_main()])))
