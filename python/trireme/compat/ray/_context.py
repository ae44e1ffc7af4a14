"""Ray's TrainContext: the worker's, with the names of the run and its trial as Ray gives them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from trireme._context import TrainContext
from trireme.compat.ray._settings import RunSettings
from trireme.compat.ray._storage import StorageContext


class RayTrainContext(TrainContext):
    _settings: RunSettings

    @classmethod
    def around(cls, context: TrainContext, settings: RunSettings) -> RayTrainContext:
        made = cls(**{each.name: getattr(context, each.name) for each in fields(TrainContext)})
        object.__setattr__(made, "_settings", settings)  # the base is frozen
        return made

    def get_experiment_name(self) -> str:
        return self._settings.experiment_name

    def get_trial_name(self) -> str:
        return self._settings.trial_name

    def get_trial_id(self) -> str:
        return self._settings.trial_id

    def get_trial_resources(self) -> Any:
        from trireme.compat.ray._placement import PlacementGroupFactory

        bundle, count = self._settings.trial_resources, self.get_world_size()
        return PlacementGroupFactory([dict(bundle) for _ in range(count)])

    def get_run_id(self) -> str:
        return self._run_id

    def get_storage(self) -> Any:
        if self._storage is None:
            return super().get_storage()
        folder, name = self._storage.parent_and_name()
        return StorageContext.of(folder, name)
