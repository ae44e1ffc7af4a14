"""Ray's StorageContext: where a run stores its checkpoints."""

from __future__ import annotations

import datetime
import os
import posixpath
import shutil
from collections.abc import Callable
from typing import Any

from trireme import _context
from trireme._checkpoint import Checkpoint
from trireme._storage import ArrowFiles, Location, resolve

SNAPSHOT = "checkpoint_manager_snapshot.json"


def default_checkpoint_name() -> str:
    return f"checkpoint_{datetime.datetime.now():%Y-%m-%d_%H-%M-%S.%f}"


class StorageContext(_context.StorageContext):
    """Also with the names that only Ray has."""

    def __init__(
        self,
        storage_path: str | os.PathLike[str],
        experiment_dir_name: str,
        storage_filesystem: Any = None,
        read_only: bool = False,
    ) -> None:
        self._begin(resolve(storage_path, storage_filesystem, "storage_path"), experiment_dir_name)
        self.read_only = read_only
        self.custom_fs_provided = storage_filesystem is not None

    @classmethod
    def of(cls, folder: Location, experiment_dir_name: str) -> StorageContext:
        made = cls.__new__(cls)
        made._begin(folder, experiment_dir_name)
        made.read_only, made.custom_fs_provided = False, folder.filesystem is not None
        return made

    def _begin(self, folder: Location, experiment_dir_name: str) -> None:
        super().__init__(folder.path, experiment_dir_name, folder.filesystem)
        self._folder = folder

    @property
    def checkpoint_manager_snapshot_path(self) -> str:
        return posixpath.join(self.experiment_fs_path, SNAPSHOT)

    def build_checkpoint_path_from_name(self, checkpoint_name: str) -> str:
        return super().build_checkpoint_path_from_name(checkpoint_name)

    @staticmethod
    def make_default_checkpoint_dir_name() -> str:
        return default_checkpoint_name()

    @staticmethod
    def get_experiment_dir_name(run_obj: str | Callable[..., Any]) -> str:
        name = run_obj if isinstance(run_obj, str) else getattr(run_obj, "__name__", "run")
        return f"{name}_{datetime.datetime.now():%Y-%m-%d_%H-%M-%S}"

    def persist_current_checkpoint(self, checkpoint: Checkpoint, checkpoint_dir_name: str) -> Checkpoint:
        """Copies a local checkpoint into the run folder under this name."""
        target = self._folder.join(self.experiment_dir_name).join(checkpoint_dir_name)
        with checkpoint.as_directory() as folder:
            if target.filesystem is None:
                shutil.copytree(folder, target.path, dirs_exist_ok=True)
            else:
                from pyarrow import fs

                ArrowFiles(target.filesystem).make_folder(target.path)
                fs.copy_files(folder, target.path, fs.LocalFileSystem(), target.filesystem)
        return Checkpoint.at(target)
