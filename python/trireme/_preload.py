"""Which modules the warm process imports for the frameworks of a script.

A framework loads a part of itself only in its first training step. These parts are listed here too, by the modules that
import the rest of them; a name that another version does not have costs nothing. tests/frameworks/test_warm_start.py
prints what the lists lack.
"""

from __future__ import annotations

import ast
import os
import sys

# Imported in the background, one by one, so that workers can be forked in between. torch's optimizers need
# torch._dynamo, which needs the rest.
LATER = {
    "torch": (
        "sympy",
        "torch.fx.experimental.symbolic_shapes",
        "torch.distributed.tensor",
        "torch.distributed.fsdp",
        "torch._dynamo",
        "trireme.torch._backend",
        "trireme.torch._model",
        "trireme.torch._loader",
    ),
    "trireme.jax._backend": ("trireme.jax._prepared_contexts",),
}

_TRAINING = (
    "torch._dynamo",
    "torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook",
    "torch.distributed.fsdp",
    "torch.distributed.tensor",
    "trireme.torch._backend",
    "trireme.torch._loader",
    "trireme.torch._model",
)
_OF_TENSORFLOW = ("tensorflow", "trireme.tensorflow._backend", "trireme.tensorflow._checkpoint")
_OF_LIGHTNING = (*_TRAINING, "trireme.lightning._prepare", "trireme.lightning._report")

_JAX = (
    "jax",
    "jax.experimental.multihost_utils",
    "jaxlib.mlir.dialects.builtin",
    "jaxlib.mlir.dialects.mhlo",
    "trireme.jax._backend",
)

# What a script imports, and what its workers need before their first step.
_FRAMEWORKS: dict[str, tuple[str, ...]] = {
    "torch": ("torch",),
    "numpy": ("numpy",),
    "lightning": ("torch", "lightning.pytorch", *_OF_LIGHTNING),
    "pytorch_lightning": ("torch", "pytorch_lightning", *_OF_LIGHTNING),
    "lightning_fabric": ("torch", "lightning_fabric", *_TRAINING),
    # Its Trainer imports DeepSpeed and datasets if they are installed. Accelerate does the same with datasets.
    "transformers": (
        "torch",
        "transformers.trainer",
        "deepspeed",
        "datasets",
        *_TRAINING,
        "trireme.transformers._report",
    ),
    "jax": _JAX,
    "flax": (*_JAX, "flax"),
    "optax": (*_JAX, "optax"),
    "orbax": (*_JAX, "orbax.checkpoint"),
    "trireme.jax": _JAX,
    "horovod": ("horovod", "horovod.common.elastic", "trireme.horovod._backend"),
    "horovod.torch": ("torch", "horovod.torch", "torch._dynamo"),
    "accelerate": ("torch", "accelerate", "datasets", *_TRAINING),
    "deepspeed": (
        "torch",
        "deepspeed",
        *_TRAINING,
        "deepspeed.runtime.zero.muon.muon_optimizer",
        "deepspeed.module_inject.auto_ep_layer",
        "distutils.ccompiler",
    ),
    "tensorflow": _OF_TENSORFLOW,
    "tf_keras": ("tf_keras", *_OF_TENSORFLOW),
    "keras": ("keras", "trireme.keras._report"),
}
# Adapters whose framework a script may not import itself.
_FRAMEWORK_OF = {
    "trireme.torch": "torch",
    "ray.train.torch": "torch",
    "trireme.tensorflow": "tensorflow",
    "ray.train.tensorflow": "tensorflow",
    "trireme.keras": "keras",
}
# The modules of these frameworks that the script names are imported too: models, strategies, loggers.
_IN_PARTS = (
    "lightning",
    "pytorch_lightning",
    "lightning_fabric",
    "transformers",
    "accelerate",
    "deepspeed",
    "jax",
    "flax",
    "optax",
    "orbax",
    "trireme.jax",
    "horovod",
)
# What their loggers import in the first step, if the script names them. TensorBoard imports TensorFlow if it can.
_TRACKERS = {"tensorboard": "torch.utils.tensorboard", "wandb": "wandb", "mlflow": "mlflow"}
# Present in a driver whose own modules, and not its script, import the framework.
_IMPORTED = {
    "lightning.pytorch": "lightning",
    "pytorch_lightning": "pytorch_lightning",
    "lightning_fabric": "lightning_fabric",
    "transformers.trainer": "transformers",
    "accelerate": "accelerate",
    "deepspeed": "deepspeed",
    "flax": "flax",
    "optax": "optax",
    "orbax.checkpoint": "orbax",
    "keras": "keras",
}
# A script that sets it does so before it imports keras: fit() preloads keras, with that value.
_BACKEND_OF_KERAS = "KERAS_BACKEND"


def needs_of(framework: str) -> list[str]:
    """The modules of one framework: what it is without the modules that the script names."""
    return list(_FRAMEWORKS[framework])


def frameworks_of(source: str) -> list[str]:
    """Modules to preload for a script, by its import statements, also those in functions. A wrong guess only costs
    start time."""
    try:
        imported = _imported_by(ast.parse(source))
    except (SyntaxError, ValueError):  # the interpreter reports it
        return []
    found: list[str] = []
    for framework, modules in _FRAMEWORKS.items():
        names = [name for name in imported if f"{name}.".startswith(f"{framework}.")]
        if framework == "keras" and _BACKEND_OF_KERAS in source:
            continue
        # A script that only reads tokens or models does not train with transformers.
        if names and (framework != "transformers" or "Trainer" in source or "TrainingArguments" in source):
            found += modules
        if framework in _IN_PARTS:
            found += [name for name in names if name != framework]
            if names:
                found += _trackers_of(framework, source)
    return list(dict.fromkeys(found))


def _trackers_of(framework: str, source: str) -> list[str]:
    text = source.lower()
    named = [module for tracker, module in _TRACKERS.items() if tracker in text]
    # A Lightning trainer without a logger writes for TensorBoard.
    if framework in ("lightning", "pytorch_lightning") and "trainer(" in text and "logger" not in text:
        named.append(_TRACKERS["tensorboard"])
    return named


def frameworks_of_main() -> list[str]:
    """Likewise for the script of this process."""
    path = getattr(sys.modules.get("__main__"), "__file__", None)
    if not path or not os.path.isfile(path):
        return []
    with open(path, encoding="utf-8", errors="replace") as file:
        return frameworks_of(file.read())


def frameworks_imported() -> list[str]:
    """Likewise for the modules that this process has imported."""
    present = [framework for module, framework in _IMPORTED.items() if module in sys.modules]
    found = [name for framework in present for name in _FRAMEWORKS[framework]]
    if "transformers.trainer" in sys.modules:
        found += [name for name in sys.modules if name.startswith("transformers.models.") and ".modeling_" in name]
    return list(dict.fromkeys(found))


def _imported_by(tree: ast.Module) -> list[str]:
    """Modules, and names that are imported from them."""
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names if alias.name != "*")]
    return [_FRAMEWORK_OF.get(name, name) for name in names]
