from __future__ import annotations

import os
from typing import Any, Self

import xgboost

from trireme._boosting._report import stored_file
from trireme._boosting._stored_model import ModelCheckpoint, folder_for


class XGBoostCheckpoint(ModelCheckpoint):
    """A checkpoint directory with a model."""

    MODEL_FILENAME = "model.json"

    @classmethod
    def from_model(
        cls, booster: xgboost.Booster, *, preprocessor: Any = None, path: str | os.PathLike[str] | None = None
    ) -> Self:
        """path: an existing directory to save in; by default a temporary one."""
        folder = folder_for(path)
        booster.save_model(os.path.join(folder, cls.MODEL_FILENAME))
        return cls._made(folder, preprocessor)

    def get_model(self) -> xgboost.Booster:
        with self.as_directory() as folder:
            booster = xgboost.Booster()
            booster.load_model(stored_file(self, folder, self.MODEL_FILENAME, "XGBoostCheckpoint.from_model()"))
            return booster
