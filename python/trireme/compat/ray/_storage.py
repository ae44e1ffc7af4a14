"""Ray's StorageContext: where a run stores its checkpoints."""

from __future__ import annotations

import datetime
import os
import posixpath
import shutil
from collections.abc import Callable
from typing import Any

from trireme._checkpoint import Checkpoint
from trireme._storage import ArrowFiles, Location, local_filesystem, resolve

SNAPSHOT = "checkpoint_manager_snapshot.json"


def default_checkpoint_name() -> str:
    return f"checkpoint_{datetime.datetime.now():%Y-%m-%d_%H-%M-%S.%f}"


class StorageContext:
    def __init__(
        self,
        storage_path: str | os.PathLike[str],
        experiment_dir_name: str,
        storage_filesystem: Any = None,
        read_only: bool = False,
    ) -> None:
        self._folder = resolve(storage_path, storage_filesystem, "storage_path")
        self.experiment_dir_name = experiment_dir_name
        self.read_only = read_only
        self.custom_fs_provided = storage_filesystem is not None

    @classmethod
    def of(cls, folder: Location, experiment_dir_name: str) -> StorageContext:
        made = cls.__new__(cls)
        made._folder, made.experiment_dir_name = folder, experiment_dir_name
        made.read_only, made.custom_fs_provided = False, folder.filesystem is not None
        return made

    @property
    def storage_fs_path(self) -> str:
        return self._folder.path

    @property
    def storage_filesystem(self) -> Any:
        return self._folder.filesystem or local_filesystem()

    @property
    def experiment_fs_path(self) -> str:
        return posixpath.join(self._folder.path, self.experiment_dir_name)

    @property
    def local_working_directory(self) -> str:
        return os.getcwd()

    @property
    def checkpoint_manager_snapshot_path(self) -> str:
        return posixpath.join(self.experiment_fs_path, SNAPSHOT)

    def build_checkpoint_path_from_name(self, checkpoint_name: str) -> str:
        return posixpath.join(self.experiment_fs_path, checkpoint_name)

    def extract_checkpoint_dir_name_from_path(self, checkpoint_path: str) -> str:
        return posixpath.basename(os.path.normpath(checkpoint_path))

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
