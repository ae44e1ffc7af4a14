"""TorchCheckpoint: a checkpoint with a model."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from typing import Any, Self

import torch
from torch.nn.parallel import DistributedDataParallel

from trireme._checkpoint import _temporary_directory
from trireme._model_checkpoint import ModelCheckpoint

_MODEL_FILE = "model.pt"
_SHOWN = 8


class TorchCheckpoint(ModelCheckpoint):
    """A checkpoint directory with `model.pt`: the state dict of a model, or the complete model."""

    @classmethod
    def from_state_dict(cls, state_dict: Mapping[str, Any], *, preprocessor: Any = None) -> Self:
        """Create a checkpoint from a state dict. Removes the name prefix of DistributedDataParallel."""
        return cls._with({_plain_name(name): value for name, value in state_dict.items()}, preprocessor)

    @classmethod
    def from_model(cls, model: torch.nn.Module, *, preprocessor: Any = None) -> Self:
        """Create a checkpoint from a complete, pickled model. Loading it needs the model's class."""
        return cls._with(model.module if isinstance(model, DistributedDataParallel) else model, preprocessor)

    def get_model(self, model: torch.nn.Module | None = None, *, allow_pickle: bool = True) -> torch.nn.Module:
        """Return the stored model, or load the stored weights into `model`, which must match exactly.

        Pass allow_pickle=False for an untrusted checkpoint: then only a state dict can be loaded.
        """
        stored = self._load(allow_pickle)
        if isinstance(stored, torch.nn.Module):
            if model is None:
                return stored
            stored = stored.state_dict()
        if model is None:
            raise ValueError(f"{self.path} holds a state dict: pass the model to load it into, get_model(model)")
        target = model.module if isinstance(model, DistributedDataParallel) else model
        wanted = target.state_dict()
        # Also correct for a model with a submodule named "module".
        names = {_plain_name(name): name for name in wanted}
        state = {names.get(_plain_name(name), name): value for name, value in stored.items()}
        if problems := _differences(state, wanted):
            more = [f"and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else []
            raise ValueError(
                f"{self.path} does not match this {type(target).__name__}:\n  " + "\n  ".join(problems[:_SHOWN] + more)
            )
        target.load_state_dict(state)
        return model

    @classmethod
    def _with(cls, stored: Any, preprocessor: Any) -> Self:
        folder = _temporary_directory(keep=False)
        torch.save(stored, os.path.join(folder, _MODEL_FILE))
        return cls._made(folder, preprocessor)

    def _load(self, allow_pickle: bool) -> Any:
        with self.as_directory() as folder:
            path = os.path.join(folder, _MODEL_FILE)
            if not os.path.exists(path):
                raise RuntimeError(
                    f"{self.path} has no {_MODEL_FILE}: it was not created by TorchCheckpoint.from_state_dict() or "
                    "from_model(); read it with to_dict() or as_directory()"
                )
            try:
                return torch.load(path, map_location="cpu", weights_only=True)
            except pickle.UnpicklingError as error:
                if not allow_pickle:
                    raise ValueError(f"{path} is a pickle and not only weights, but allow_pickle=False") from error
                return torch.load(path, map_location="cpu", weights_only=False)


def _plain_name(name: str) -> str:
    return name.removeprefix("module.")


def _differences(stored: Mapping[str, Any], wanted: Mapping[str, Any]) -> list[str]:
    missing = [f"missing: {name}" for name in wanted if name not in stored]
    unexpected = [f"unexpected: {name}" for name in stored if name not in wanted]
    both = [name for name in wanted if name in stored and isinstance(wanted[name], torch.Tensor)]
    kinds = [(name, _kind(stored[name]), _kind(wanted[name])) for name in both]
    different = [f"{name}: stored {its}, the model has {mine}" for name, its, mine in kinds if its != mine]
    return missing + unexpected + different


def _kind(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return type(value).__name__
    return f"{tuple(value.shape)} {str(value.dtype).removeprefix('torch.')}"
