"""TensorflowCheckpoint: a checkpoint with a Keras model or a SavedModel."""

from __future__ import annotations

import os
import shutil
from typing import Any, Self

import tensorflow as tf

from trireme._checkpoint import _temporary_directory
from trireme._model_checkpoint import ModelCheckpoint
from trireme.tensorflow._config import require_tensorflow

_SAVED_MODEL = "saved_model.pb"

require_tensorflow()


class TensorflowCheckpoint(ModelCheckpoint):
    """A checkpoint directory with a model: `model.keras`, an .h5 file, or a SavedModel."""

    MODEL_FILENAME_KEY = "_model_filename"

    @classmethod
    def from_model(cls, model: Any, *, preprocessor: Any = None) -> Self:
        """Saves a Keras model, with its optimizer. Call it on all workers if the model belongs to a strategy, and
        report the checkpoint of one of them."""
        folder = _temporary_directory(keep=False)
        model.save(os.path.join(folder, "model.keras"))
        return cls._stored(folder, "model.keras", preprocessor)

    @classmethod
    def from_h5(cls, file_path: str | os.PathLike[str], *, preprocessor: Any = None) -> Self:
        """Copies a model that `model.save("name.h5")` has written."""
        path = os.fspath(file_path)
        if not os.path.isfile(path) or not path.endswith(".h5"):
            raise ValueError(f"TensorflowCheckpoint.from_h5({path!r}): not an existing .h5 file")
        folder = _temporary_directory(keep=False)
        shutil.copy(path, folder)
        return cls._stored(folder, os.path.basename(path), preprocessor)

    @classmethod
    def from_saved_model(cls, dir_path: str | os.PathLike[str], *, preprocessor: Any = None) -> Self:
        """Copies a directory that `tf.saved_model.save()` or `model.export()` has written."""
        path = os.fspath(dir_path)
        if not os.path.isdir(path):
            raise ValueError(f"TensorflowCheckpoint.from_saved_model({path!r}): not a directory")
        folder = _temporary_directory(keep=False)
        shutil.copytree(path, folder, dirs_exist_ok=True)
        return cls._stored(folder, ".", preprocessor)

    def get_model(self, **options: Any) -> Any:
        """The model. Call it in the scope of a strategy to load it for training with that strategy.

        options: of keras.models.load_model(), such as custom_objects. Keras 3 has no models in the SavedModel format:
        for those, returns what tf.saved_model.load() does.
        """
        name = self.get_metadata().get(self.MODEL_FILENAME_KEY)
        with self.as_directory() as folder:
            if name is None:
                name = _found_model(folder, self.path)
            path = os.path.normpath(os.path.join(folder, name))
            if os.path.isdir(path) and not getattr(tf.keras, "__version__", "2.").startswith("2."):  # tf_keras: none
                return tf.saved_model.load(path, **options)
            return tf.keras.models.load_model(path, **options)

    @classmethod
    def _stored(cls, folder: str, name: str, preprocessor: Any) -> Self:
        made = cls._made(folder, preprocessor)
        made.update_metadata({cls.MODEL_FILENAME_KEY: name})
        return made


def _found_model(folder: str, where: str) -> str:
    """For a checkpoint whose metadata was replaced, or that was not created by this class."""
    models = [name for name in sorted(os.listdir(folder)) if name.endswith((".keras", ".h5"))]
    if len(models) == 1:
        return models[0]
    if os.path.isfile(os.path.join(folder, _SAVED_MODEL)):
        return "."
    found = ", ".join(sorted(os.listdir(folder))) or "nothing"
    raise ValueError(
        f"{where} has {found}, and not one model: it was not created by TensorflowCheckpoint, or "
        "ReportCheckpointCallback; read its files with as_directory()"
    )
