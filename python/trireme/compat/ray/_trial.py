"""The first version's trial: one run of a trainer, as its callbacks see it."""

from __future__ import annotations

import os
import secrets
import time
from dataclasses import dataclass, field
from typing import Any

_LONGEST_NAME = 130  # as in Ray


@dataclass
class Trial:
    """What callbacks of Ray Tune read from a trial."""

    trainable_name: str
    config: dict[str, Any]
    experiment_dir_name: str = ""
    local_path: str = ""  # the run folder
    status: str = "PENDING"
    experiment_tag: str = "0"
    trial_id: str = field(default_factory=lambda: f"{secrets.token_hex(3)[:5]}_00000")
    rows: list[dict[str, Any]] = field(default_factory=list)
    checkpoint: Any = None
    started: float = field(default_factory=time.time)
    index: int = 0  # in the experiment of a Tuner
    experiment: list[Trial] | None = None  # its trials; None: the only one
    params: dict[str, Any] = field(default_factory=dict)  # what the search has chosen, by path
    custom_name: str = ""
    custom_folder: str = ""

    @property
    def trial_name(self) -> str:
        return self.custom_name or f"{self.trainable_name}_{self.trial_id}"

    @property
    def folder_name(self) -> str:
        if self.custom_folder:
            return self.custom_folder
        name = f"{self.trial_name}_{self.experiment_tag}"[:_LONGEST_NAME].replace("/", "_")
        return f"{name}_{time.strftime('%Y-%m-%d_%H-%M-%S', time.localtime(self.started))}"

    @property
    def siblings(self) -> list[Trial]:
        return [self] if self.experiment is None else self.experiment

    @property
    def last_result(self) -> dict[str, Any]:
        return self.rows[-1] if self.rows else {}

    @property
    def path(self) -> str:
        return self.local_path

    logdir = local_dir = path

    @property
    def evaluated_params(self) -> dict[str, Any]:
        return self.params

    def get_trainable_cls(self) -> None:
        return None

    @property
    def local_experiment_path(self) -> str:
        return os.path.dirname(self.local_path)

    def __str__(self) -> str:
        return self.trial_name

    def __hash__(self) -> int:
        return hash(self.trial_id)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Trial) and self.trial_id == other.trial_id
