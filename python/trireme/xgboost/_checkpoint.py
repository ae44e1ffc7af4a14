from __future__ import annotations

import xgboost

from trireme._boosting._report import stored_model
from trireme._model_checkpoint import BoosterCheckpoint
from trireme.xgboost._report import loaded


class XGBoostCheckpoint(BoosterCheckpoint[xgboost.Booster]):
    """A checkpoint directory with a model."""

    MODEL_FILENAME = "model.json"

    def get_model(self) -> xgboost.Booster:
        return stored_model(self, self.MODEL_FILENAME, "XGBoostCheckpoint.from_model()", loaded)
