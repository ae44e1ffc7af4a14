"""Metrics, configuration and checkpoints for Weights & Biases."""

from __future__ import annotations

import os
from typing import Any

from trireme._extras import imported
from trireme.callbacks import RunContext
from trireme.integrations._tracker import Entry, Nothing, Tracker


def _wandb() -> Any:
    return imported("wandb", "the Weights & Biases integration needs wandb: pip install trireme[wandb]")


def _use_key(api_key: str | None, api_key_file: str | os.PathLike[str] | None) -> None:
    if api_key and api_key_file:
        raise ValueError("api_key and api_key_file are mutually exclusive; set one of them")
    if api_key_file:
        with open(os.path.expanduser(api_key_file), encoding="utf-8") as file:
            api_key = file.readline().strip()
    if api_key:
        os.environ["WANDB_API_KEY"] = api_key


class WandbCallback(Tracker):
    """Logs each run to one W&B run, which a continued run appends to: rank 0's metrics by report number,
    `train_loop_config` as the configuration, and checkpoints as artifacts if `upload_checkpoints`. Other arguments are
    passed to wandb.init()."""

    name = "Weights & Biases"

    def __init__(
        self,
        project: str | None = None,
        group: str | None = None,
        api_key_file: str | os.PathLike[str] | None = None,
        api_key: str | None = None,
        excludes: list[str] | None = None,
        upload_checkpoints: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__()
        _wandb()
        _use_key(api_key, api_key_file)
        self._options = {"project": project, "group": group, **kwargs}
        self._excludes = set(excludes or [])
        self._upload_checkpoints = upload_checkpoints
        self._run: Any = None

    def open(self, run_context: RunContext) -> int:
        wandb = _wandb()
        options = {
            "name": run_context.run_config.name,
            "id": run_context.first_run_id,
            "resume": "allow",
            "dir": run_context.path,
            "config": run_context.train_loop_config or {},
            # Allow several runs in one process, and do not capture the driver's output.
            "reinit": "create_new",
            "settings": wandb.Settings(console="off", silent=True),
            **{key: value for key, value in self._options.items() if value is not None},
        }
        os.makedirs(run_context.path, exist_ok=True)
        self._run = wandb.init(**options)
        return int(self._run.step)

    def log(self, entries: list[Entry]) -> None:
        for entry in entries:
            metrics = {key: value for key, value in entry.metrics.items() if not self._excluded(key)}
            self._run.log(metrics, step=entry.step)
            if entry.checkpoint is not None and self._upload_checkpoints:
                artifact = _wandb().Artifact(f"checkpoint_{self._run.id}", type="model", metadata={"step": entry.step})
                with entry.checkpoint.as_directory() as folder:
                    artifact.add_dir(folder)
                    self._run.log_artifact(artifact)

    def close(self, error: BaseException | None) -> None:
        self._run.finish(exit_code=1 if error else 0)
        self._run = None

    def _excluded(self, key: str) -> bool:
        return key in self._excludes or key.partition("/")[0] in self._excludes

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_run": None}


WandbLoggerCallback = WandbCallback


def setup_wandb(
    config: dict[str, Any] | None = None,
    api_key: str | None = None,
    api_key_file: str | os.PathLike[str] | None = None,
    rank_zero_only: bool = True,
    **kwargs: Any,
) -> Any:
    """Call in a training function. Calls wandb.init() on rank 0; other ranks get an object that does nothing. Other
    arguments are passed to wandb.init()."""
    from trireme._session import get_context

    context = get_context()
    if rank_zero_only and context.get_world_rank() != 0:
        return Nothing()
    wandb = _wandb()
    _use_key(api_key, api_key_file)
    rank = "" if rank_zero_only else f"-rank{context.get_world_rank()}"
    options = {
        "name": f"{context.get_experiment_name()}{rank}",
        "group": context.get_experiment_name(),
        "dir": context.get_trial_dir(),
        "config": config or {},
        **kwargs,
    }
    return wandb.init(**options)
