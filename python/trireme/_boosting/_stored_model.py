from __future__ import annotations

import os
import pickle
from typing import Any, Self

import cloudpickle

from trireme._checkpoint import Checkpoint, _temporary_directory

_PREPROCESSOR = "preprocessor_pkl"


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
        self.update_metadata({_PREPROCESSOR: cloudpickle.dumps(preprocessor).hex()})


def folder_for(path: str | os.PathLike[str] | None) -> str:
    if path is None:
        return _temporary_directory(keep=False)
    if not os.path.isdir(path):
        raise ValueError(f"from_model(path={os.fspath(path)!r}): not a directory; create it first")
    return os.fspath(path)
