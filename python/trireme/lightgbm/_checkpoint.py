from __future__ import annotations

import os
from typing import Any, Self

import lightgbm

from trireme._boosting._report import stored_file
from trireme._boosting._stored_model import ModelCheckpoint, folder_for


class LightGBMCheckpoint(ModelCheckpoint):
    """A checkpoint directory with a model."""

    MODEL_FILENAME = "model.txt"

    @classmethod
    def from_model(
        cls, booster: lightgbm.Booster, *, preprocessor: Any = None, path: str | os.PathLike[str] | None = None
    ) -> Self:
        """path: an existing directory to save in; by default a temporary one."""
        folder = folder_for(path)
        booster.save_model(os.path.join(folder, cls.MODEL_FILENAME))
        return cls._made(folder, preprocessor)

    def get_model(self) -> lightgbm.Booster:
        with self.as_directory() as folder:
            path = stored_file(self, folder, self.MODEL_FILENAME, "LightGBMCheckpoint.from_model()")
            return lightgbm.Booster(model_file=path)
