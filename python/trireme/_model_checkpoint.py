"""Checkpoints with a model of a framework, and a preprocessor."""

from __future__ import annotations

import os
import pickle
from abc import abstractmethod
from typing import Any, ClassVar, Generic, Self, TypeVar

from trireme._checkpoint import Checkpoint, _temporary_directory

_PREPROCESSOR = "preprocessor_pkl"

Model = TypeVar("Model")


class ModelCheckpoint(Checkpoint):
    @classmethod
    def _made(cls, folder: str, preprocessor: Any) -> Self:
        made = cls(folder)
        if preprocessor is not None:
            made.set_preprocessor(preprocessor)
        return made

    def get_preprocessor(self) -> Any:
        """Return the preprocessor set by set_preprocessor(), or None. Unpickling it can run arbitrary code."""
        dumped = self.get_metadata().get(_PREPROCESSOR)
        return None if dumped is None else pickle.loads(bytes.fromhex(dumped))

    def set_preprocessor(self, preprocessor: Any) -> None:
        import cloudpickle

        self.update_metadata({_PREPROCESSOR: cloudpickle.dumps(preprocessor).hex()})


class BoosterCheckpoint(ModelCheckpoint, Generic[Model]):
    """A checkpoint directory with a model."""

    MODEL_FILENAME: ClassVar[str]

    @classmethod
    def from_model(
        cls, booster: Model, *, preprocessor: Any = None, path: str | os.PathLike[str] | None = None
    ) -> Self:
        """path: an existing directory to save in; by default a temporary one."""
        if path is not None and not os.path.isdir(path):
            raise ValueError(f"from_model(path={os.fspath(path)!r}): not a directory; create it first")
        folder = _temporary_directory(keep=False) if path is None else os.fspath(path)
        booster.save_model(os.path.join(folder, cls.MODEL_FILENAME))  # type: ignore[attr-defined]
        return cls._made(folder, preprocessor)

    @abstractmethod
    def get_model(self) -> Model: ...
