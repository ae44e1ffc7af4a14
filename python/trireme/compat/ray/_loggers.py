"""Ray's logger callbacks: those of trireme.integrations with Ray's parameters. Each is made on first use, because it
needs its package."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trireme.compat.ray._callbacks import LoggerCallback
from trireme.compat.ray._refusal import warn_once

if TYPE_CHECKING:
    from trireme.integrations.mlflow import MLflowCallback
    from trireme.integrations.tensorboard import TensorBoardCallback
    from trireme.integrations.wandb import WandbCallback


class JsonLoggerCallback(LoggerCallback):
    """Nothing to do: a run of the first version always writes result.json."""


class CSVLoggerCallback(LoggerCallback):
    """Nothing to do: a run of the first version always writes progress.csv."""


def TBXLoggerCallback() -> TensorBoardCallback:
    from trireme.integrations.tensorboard import TensorBoardCallback

    return TensorBoardCallback()


def WandbLoggerCallback(
    project: str | None = None,
    group: str | None = None,
    api_key_file: str | None = None,
    api_key: str | None = None,
    excludes: list[str] | None = None,
    log_config: bool = False,
    upload_checkpoints: bool = False,
    save_checkpoints: bool = False,
    upload_timeout: int = 1800,
    **kwargs: Any,
) -> WandbCallback:
    from trireme.integrations.wandb import WandbCallback

    if log_config:
        warn_once("WandbLoggerCallback(log_config=True) has no effect: the configuration is logged once")
    return WandbCallback(
        project, group, api_key_file, api_key, excludes, upload_checkpoints or save_checkpoints, **kwargs
    )


def MLflowLoggerCallback(
    tracking_uri: str | None = None,
    *,
    registry_uri: str | None = None,
    experiment_name: str | None = None,
    tags: dict[str, Any] | None = None,
    tracking_token: str | None = None,
    save_artifact: bool = False,
    log_params_on_trial_end: bool = False,
) -> MLflowCallback:
    from trireme.integrations.mlflow import MLflowCallback

    return MLflowCallback(
        tracking_uri,
        registry_uri=registry_uri,
        experiment_name=experiment_name,
        tags=tags,
        tracking_token=tracking_token,
        save_artifact=save_artifact,
    )
