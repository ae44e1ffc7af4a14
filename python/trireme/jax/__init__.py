"""JAX: a trainer that sets up jax.distributed on its workers, and functions for sharded batches and checkpoints.

Importing this module does not import jax. Accessing a function that needs jax does.
"""

from typing import TYPE_CHECKING

from trireme._late_names import late_names
from trireme._preload import frameworks_of_main
from trireme._runtime import warm_up
from trireme.jax._config import JaxConfig
from trireme.jax._trainer import JaxTrainer

if TYPE_CHECKING:
    from trireme.jax._batches import iter_batches
    from trireme.jax._sharded import load_sharded, save_sharded

__all__ = ["JaxConfig", "JaxTrainer", "iter_batches", "load_sharded", "save_sharded"]

# These import jax.
__getattr__, __dir__ = late_names(
    __name__,
    {"iter_batches": "_batches", "load_sharded": "_sharded", "save_sharded": "_sharded"},
    requires=("jax", "orbax"),
)

# The warm process imports jax, and the frameworks that the script names, in parallel with the setup of the script.
warm_up([*JaxConfig.preload, *frameworks_of_main()])
