"""Models in the checkpoints of ReportCheckpointCallback."""

from __future__ import annotations

import os
from typing import Any

from trireme._checkpoint import Checkpoint
from trireme.keras._package import package

MODEL_FILE = "model.keras"
EPOCHS = "completed_epochs"


def load_model(checkpoint: Checkpoint, **options: Any) -> Any:
    """The model in a checkpoint, compiled, with its optimizer. Call it in the scope of a strategy to train with that
    strategy.

    options: of keras.models.load_model(), such as custom_objects.
    """
    with checkpoint.as_directory() as folder:
        path = os.path.join(folder, MODEL_FILE)
        if not os.path.isfile(path):
            found = ", ".join(sorted(os.listdir(folder))) or "nothing"
            raise FileNotFoundError(
                f"{checkpoint.path} has no {MODEL_FILE}, only {found}: it was not created by ReportCheckpointCallback"
            )
        return package().models.load_model(path, **options)


def completed_epochs(checkpoint: Checkpoint | None) -> int:
    """The `initial_epoch` of fit() that continues after this checkpoint of ReportCheckpointCallback; None: 0."""
    return 0 if checkpoint is None else int(checkpoint.get_metadata().get(EPOCHS, 0))
