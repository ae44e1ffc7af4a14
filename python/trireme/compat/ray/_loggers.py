"""Ray's logger callbacks: those of trireme.integrations with Ray's parameters."""

from __future__ import annotations

from typing import Any

from trireme.compat.ray._callbacks import LoggerCallback
from trireme.compat.ray._refusal import warn_once
from trireme.integrations.mlflow import MLflowCallback
from trireme.integrations.wandb import WandbCallback


class JsonLoggerCallback(LoggerCallback):
    """Nothing to do: a run of the first version always writes result.json."""


class CSVLoggerCallback(LoggerCallback):
    """Nothing to do: a run of the first version always writes progress.csv."""


class WandbLoggerCallback(WandbCallback):
    def __init__(
        self,
        project: str | None = None,
        group: str | None = None,
        api_key_file: str | None = None,
        api_key: str | None = None,
        excludes: list[str] | None = None,
        log_config: bool = False,
        upload_checkpoints: bool = False,
        save_checkpoints: bool = False,
        upload_timeout: int = 1800,
        video_kwargs: Any = None,
        image_kwargs: Any = None,
        **kwargs: Any,
    ) -> None:
        if log_config:
            warn_once("WandbLoggerCallback(log_config=True) has no effect: the configuration is logged once")
        checkpoints = upload_checkpoints or save_checkpoints
        super().__init__(project, group, api_key_file, api_key, excludes, checkpoints, **kwargs)


class MLflowLoggerCallback(MLflowCallback):
    def __init__(
        self,
        tracking_uri: str | None = None,
        *,
        registry_uri: str | None = None,
        experiment_name: str | None = None,
        tags: dict[str, Any] | None = None,
        tracking_token: str | None = None,
        save_artifact: bool = False,
        log_params_on_trial_end: bool = False,
    ) -> None:
        super().__init__(
            tracking_uri,
            registry_uri=registry_uri,
            experiment_name=experiment_name,
            tags=tags,
            tracking_token=tracking_token,
            save_artifact=save_artifact,
        )
