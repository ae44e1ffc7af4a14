"""The trainer of a run, kept in its folder for Trainer.restore()."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from trireme._storage import Location

if TYPE_CHECKING:
    from trireme._trainer import DataParallelTrainer

FILE = "trainer.pkl"


def store(trainer: DataParallelTrainer, path: str, storage: Location) -> str | None:
    """Into the run folder, and the one in the storage. Says why where that cannot be; the run goes on then."""
    try:
        content = _dump(trainer)
        place = os.path.join(path, FILE)
        # For this user's eyes only: configurations may hold secrets.
        descriptor = os.open(f"{place}.{os.getpid()}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with open(descriptor, "wb") as file:
            file.write(content)
        os.replace(f"{place}.{os.getpid()}", place)
        if (files := storage.files()) is not None:
            files.write(storage.join(FILE).path, content)
    except Exception as error:
        return (
            f"the trainer cannot be stored, so {type(trainer).__name__}.restore() will not work for this run: {error}"
        )
    return None


def stored(folder: Location) -> bool:
    place = folder.join(FILE)
    files = place.files()
    return os.path.isfile(place.path) if files is None else files.exists(place.path)


def load(folder: Location, cls: type[DataParallelTrainer]) -> tuple[type[DataParallelTrainer], dict[str, Any]]:
    """The trainer's class and attributes; without those that it was not possible to store."""
    import cloudpickle

    place = folder.join(FILE)
    way_out = (
        f"Build the trainer again, with RunConfig(name={os.path.basename(folder.path)!r}, storage_path=...) of that "
        "folder: fit() then continues the run all the same"
    )
    if not stored(folder):
        raise ValueError(f"{folder} has no {FILE}, so there is no trainer to restore. {way_out}")
    try:
        files = place.files()
        if files is not None:
            content = files.read(place.path)
        else:
            with open(place.path, "rb") as file:
                content = file.read()
        made_by, attributes = cloudpickle.loads(content)
    except Exception as error:
        raise RuntimeError(f"{place} cannot be read ({type(error).__name__}: {error}). {way_out}") from error
    if not issubclass(made_by, cls):
        raise TypeError(f"{place} was stored by a {made_by.__name__}; call {made_by.__name__}.restore()")
    return made_by, attributes


def _dump(trainer: DataParallelTrainer) -> bytes:
    import cloudpickle

    # The path that restore() is given tells where the run is; a filesystem may hold keys.
    attributes = {
        **vars(trainer),
        "run_config": trainer.run_config.replace(storage_filesystem=None, storage_path=None),
        # Their names only: they are given again.
        "datasets": dict.fromkeys(trainer.datasets),
    }
    try:
        content: bytes = cloudpickle.dumps((type(trainer), attributes))
    except Exception:
        # Callbacks stay in the driver and may hold what cannot be pickled; the rest has gone to the workers.
        attributes["run_config"] = attributes["run_config"].replace(callbacks=[])
        attributes["_callbacks_lost"] = True
        content = cloudpickle.dumps((type(trainer), attributes))
    return content
