"""The ranks, sizes, names and folders of a worker."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from trireme._storage import Location, local_filesystem


@dataclass(frozen=True)
class StorageContext:
    """The storage location of a run."""

    storage_fs_path: str
    experiment_dir_name: str
    _filesystem: Any = None

    @property
    def storage_filesystem(self) -> Any:
        """The pyarrow filesystem that contains these paths."""
        return self._filesystem or local_filesystem()

    @property
    def experiment_fs_path(self) -> str:
        return os.path.join(self.storage_fs_path, self.experiment_dir_name)

    @property
    def local_working_directory(self) -> str:
        return os.getcwd()

    def build_checkpoint_path_from_name(self, checkpoint_dir_name: str) -> str:
        return os.path.join(self.experiment_fs_path, checkpoint_dir_name)

    def extract_checkpoint_dir_name_from_path(self, checkpoint_path: str) -> str:
        return os.path.basename(os.path.normpath(checkpoint_path))


@dataclass(frozen=True)
class TrainContext:
    """The ranks, sizes, names and folders of this worker, as returned by `trireme.get_context()`."""

    _experiment_name: str
    _world_size: int = 1
    _world_rank: int = 0
    _local_world_size: int = 1
    _local_rank: int = 0
    _node_rank: int = 0
    _run_id: str = ""
    _path: str | None = None
    _storage: Location | None = None
    _attempt: int = 0
    _num_nodes: int = 1
    _gpus: Sequence[str] = ()
    _visible_gpus: Sequence[str] = ()
    _whole_gpus: bool = False
    _resources: Mapping[str, float] = field(default_factory=dict)
    _metadata: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, start: Mapping[str, Any], storage: Location) -> TrainContext:
        """The context of a worker; its start message has these fields under the same names."""
        names = [each.name for each in fields(cls)]
        return cls(_storage=storage, **{name: start[name[1:]] for name in names if name[1:] in start})

    def get_experiment_name(self) -> str:
        return self._experiment_name

    def get_world_size(self) -> int:
        return self._world_size

    def get_world_rank(self) -> int:
        return self._world_rank

    def get_local_world_size(self) -> int:
        return self._local_world_size

    def get_local_rank(self) -> int:
        return self._local_rank

    def get_node_rank(self) -> int:
        return self._node_rank

    def get_metadata(self) -> dict[str, Any]:
        """The trainer's `metadata`."""
        return dict(self._metadata)

    def get_trial_name(self) -> str:
        return self._experiment_name

    def get_trial_id(self) -> str:
        return self._run_id

    def get_trial_resources(self) -> dict[str, float]:
        """This worker's resources, by name."""
        return dict(self._resources)

    def get_trial_dir(self) -> str | None:
        """The run folder on the driver's machine; None in local mode."""
        return self._path

    def get_storage(self) -> StorageContext:
        if self._storage is None:
            raise NotImplementedError("local mode (num_workers=0) has no storage; use num_workers=1 or more")
        folder, name = self._storage.parent_and_name()
        return StorageContext(folder.path, name, folder.filesystem)
