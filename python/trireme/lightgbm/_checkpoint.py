from __future__ import annotations

import lightgbm

from trireme._boosting._report import stored_model
from trireme._model_checkpoint import BoosterCheckpoint
from trireme.lightgbm._report import loaded


class LightGBMCheckpoint(BoosterCheckpoint[lightgbm.Booster]):
    """A checkpoint directory with a model."""

    MODEL_FILENAME = "model.txt"

    def get_model(self) -> lightgbm.Booster:
        return stored_model(self, self.MODEL_FILENAME, "LightGBMCheckpoint.from_model()", loaded)
