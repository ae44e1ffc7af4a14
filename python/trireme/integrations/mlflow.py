"""Metrics, parameters and checkpoints for MLflow."""

from __future__ import annotations

import os
import re
from typing import Any

from trireme._errors import one_line
from trireme._extras import imported
from trireme._tables import flatten
from trireme.callbacks import RunContext
from trireme.integrations._tracker import Entry, Nothing, Tracker, numbers

_MAX_PARAM = 6000  # MLflow's own limit
_RUN_TAG = "trireme.run_id"


def _mlflow() -> Any:
    return imported("mlflow", "the MLflow integration needs mlflow: pip install trireme[mlflow]")


class MLflowCallback(Tracker):
    """Logs each run to one MLflow run, which a continued run appends to: rank 0's metrics by report number,
    `train_loop_config` as parameters, and checkpoints as artifacts if `save_artifact`."""

    name = "MLflow"

    def __init__(
        self,
        tracking_uri: str | None = None,
        *,
        registry_uri: str | None = None,
        experiment_name: str | None = None,
        run_name: str | None = None,
        tags: dict[str, Any] | None = None,
        tracking_token: str | None = None,
        save_artifact: bool = False,
    ) -> None:
        super().__init__()
        _mlflow()
        self._tracking_uri = tracking_uri
        self._registry_uri = registry_uri
        self._experiment_name = experiment_name
        self._run_name = run_name
        self._tags = dict(tags or {})
        self._save_artifact = save_artifact
        self._client: Any = None
        self._run_id = ""
        if tracking_token:
            os.environ["MLFLOW_TRACKING_TOKEN"] = tracking_token

    def open(self, run_context: RunContext) -> int:
        mlflow = _mlflow()
        self._client = mlflow.MlflowClient(self._tracking_uri, self._registry_uri)
        experiment = _experiment_id(self._client, self._experiment_name or str(run_context.run_config.name))
        found = self._find(experiment, run_context.first_run_id) if run_context.resumed else None
        if found is None:
            tags = {_RUN_TAG: run_context.first_run_id, "trireme.path": run_context.storage_path, **self._tags}
            name = self._run_name or run_context.run_config.name
            found = self._client.create_run(experiment, tags={k: str(v) for k, v in tags.items()}, run_name=name)
        else:
            self._client.update_run(found.info.run_id, status="RUNNING")
        self._run_id = found.info.run_id
        self._log_params(found, run_context.train_loop_config or {})
        return 1 + max(
            (point.step for key in found.data.metrics for point in self._client.get_metric_history(self._run_id, key)),
            default=-1,
        )

    def log(self, entries: list[Entry]) -> None:
        Metric = _mlflow().entities.Metric
        metrics = [
            Metric(_valid(key), value, int(entry.time * 1000), entry.step)
            for entry in entries
            for key, value in numbers(entry.metrics)
        ]
        for start in range(0, len(metrics), 1000):
            self._client.log_batch(self._run_id, metrics=metrics[start : start + 1000])
        for entry in entries if self._save_artifact else []:
            if entry.checkpoint is not None:
                with entry.checkpoint.as_directory() as folder:
                    name = os.path.basename(entry.checkpoint.path)
                    self._client.log_artifacts(self._run_id, folder, f"checkpoints/{name}")

    def close(self, error: BaseException | None) -> None:
        if error is not None:
            self._client.set_tag(self._run_id, "trireme.error", one_line(error))
        stopped = isinstance(error, KeyboardInterrupt)
        self._client.set_terminated(self._run_id, "KILLED" if stopped else "FAILED" if error else "FINISHED")

    def _find(self, experiment: str, run_id: str) -> Any:
        runs = self._client.search_runs([experiment], f"tags.`{_RUN_TAG}` = '{run_id}'", max_results=1)
        return runs[0] if runs else None

    def _log_params(self, run: Any, config: dict[str, Any]) -> None:
        """MLflow refuses to change a parameter: the values of the first start are kept."""
        Param = _mlflow().entities.Param
        params = {_valid(key): str(value)[:_MAX_PARAM] for key, value in flatten(config).items()}
        missing = [Param(key, value) for key, value in params.items() if key not in run.data.params]
        for start in range(0, len(missing), 100):
            self._client.log_batch(self._run_id, params=missing[start : start + 100])

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"_client": None}


MLflowLoggerCallback = MLflowCallback


def setup_mlflow(
    config: dict[str, Any] | None = None,
    tracking_uri: str | None = None,
    registry_uri: str | None = None,
    experiment_id: str | None = None,
    experiment_name: str | None = None,
    tracking_token: str | None = None,
    artifact_location: str | None = None,
    run_name: str | None = None,
    create_experiment_if_not_exists: bool = False,
    tags: dict[str, Any] | None = None,
    rank_zero_only: bool = True,
) -> Any:
    """Call in a training function. Starts an MLflow run on rank 0 and returns the mlflow module; other ranks get an
    object that does nothing."""
    from trireme._session import get_context

    context = get_context()
    if rank_zero_only and context.get_world_rank() != 0:
        return Nothing()
    mlflow = _mlflow()
    if tracking_token:
        os.environ["MLFLOW_TRACKING_TOKEN"] = tracking_token
    if tracking_uri is not None:
        mlflow.set_tracking_uri(tracking_uri)
    if registry_uri is not None:
        mlflow.set_registry_uri(registry_uri)
    client = mlflow.MlflowClient()
    if experiment_id is None:
        name = experiment_name or context.get_experiment_name()
        wanted = create_experiment_if_not_exists or experiment_name is None
        experiment_id = _experiment_id(client, name, wanted, artifact_location)
    name = run_name or context.get_experiment_name()
    mlflow.start_run(experiment_id=experiment_id, run_name=name, tags=tags)
    if config:
        mlflow.log_params({_valid(key): str(value)[:_MAX_PARAM] for key, value in flatten(config).items()})
    return mlflow


def _experiment_id(client: Any, name: str, create: bool = True, artifact_location: str | None = None) -> str:
    found = client.get_experiment_by_name(name)
    if found is not None:
        return str(found.experiment_id)
    if not create:
        raise ValueError(f"no MLflow experiment named {name!r}; create it or set create_experiment_if_not_exists=True")
    return str(client.create_experiment(name, artifact_location))


def _valid(key: str) -> str:
    return re.sub(r"[^\w\-. :/]", "_", key)
