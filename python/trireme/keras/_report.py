"""ReportCheckpointCallback: metrics and models of Keras' fit() become reports of the worker."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from functools import cache
from types import ModuleType
from typing import Any

from trireme._checkpoint import Checkpoint
from trireme._preemption_watch import PreemptionWatch
from trireme._report import CheckpointUploadMode, mode_of_callback
from trireme._session import current_session, get_context, report
from trireme._validation import ValidationTaskConfig
from trireme.keras._model import EPOCHS, MODEL_FILE
from trireme.keras._package import backend, package

EVENTS = tuple(
    f"{what}_{when}"
    for what in ("epoch", "train_batch", "test_batch", "predict_batch", "train", "test", "predict")
    for when in ("begin", "end")
)

Events = str | list[str]
Metrics = str | list[str] | dict[str, str] | None


@cache
def _class_of(keras: ModuleType) -> Any:
    """Pickled by name: a worker makes its own."""
    made = type(
        "ReportCheckpointCallback",
        (_ReportCheckpointCallback, keras.callbacks.Callback),
        {"__module__": "trireme.keras"},
    )
    made.__doc__ = _ReportCheckpointCallback.__doc__
    return made


def report_callback_class() -> Any:
    return _class_of(package())


class _ReportCheckpointCallback:
    """Reports the logs of Keras, and checkpoints with the model and its optimizer.

    checkpoint_on: events that report a checkpoint, with the metrics: hooks of Keras without "on_", such as "epoch_end"
        or "train_batch_end". [] saves none.
    report_metrics_on: events that report metrics.
    metrics: None reports all logs; a name or a list of names reports these; a dict reports them under other names (its
        keys).
    on_preemption: report a checkpoint when a preemption is announced. Training continues until the workers are
        replaced.
    checkpoint_upload_mode: SYNC waits until the file is stored, ASYNC stores it while training continues.
    validation: as in trireme.report().
    """

    def __init__(
        self,
        checkpoint_on: Events = "epoch_end",
        report_metrics_on: Events = "epoch_end",
        metrics: Metrics = None,
        *,
        on_preemption: bool = True,
        checkpoint_upload_mode: CheckpointUploadMode = CheckpointUploadMode.SYNC,
        validation: bool | ValidationTaskConfig = False,
    ) -> None:
        self._checkpoint_on = _events("checkpoint_on", checkpoint_on)
        self._report_metrics_on = _events("report_metrics_on", report_metrics_on)
        self._metrics = _metric_names(metrics)
        super().__init__()
        # The watch is a collective operation, and with parameter servers only the chief is in fit().
        alone = '"ps"' in os.environ.get("TF_CONFIG", "")
        self._preemptions = PreemptionWatch() if on_preemption and not alone else None
        self._mode = mode_of_callback("ReportCheckpointCallback", checkpoint_upload_mode)
        self._validation = validation
        self._completed_epochs = 0
        self._data_epochs: dict[str, int] = {}  # of the data sources, when the current epoch began
        self._last_logs: dict[str, Any] = {}

    def _on(self, event: str, logs: Mapping[str, Any] | None) -> None:
        found = {name: _plain(value) for name, value in (logs or {}).items() if name != "outputs"}
        self._last_logs = found or self._last_logs
        saves = event in self._checkpoint_on
        if saves or event in self._report_metrics_on:
            self._report(self._selected(found, event), saves)
        if event == "train_batch_end" and self._preemptions is not None and self._preemptions.step() and not saves:
            self._report(self._selected(self._last_logs, event), True)

    def _selected(self, logs: dict[str, Any], event: str) -> dict[str, Any]:
        if self._metrics is None:
            return logs
        if missing := sorted(set(self._metrics.values()) - logs.keys()):
            raise KeyError(
                f"ReportCheckpointCallback(metrics=...): no metric {', '.join(missing)} at {event!r}; the metrics are: "
                f"{', '.join(logs) or 'none'}"
            )
        return {name: logs[source] for name, source in self._metrics.items()}

    def _report(self, metrics: dict[str, Any], saves: bool) -> None:
        if not saves:
            report(metrics)
            return
        rank = get_context().get_world_rank()
        if rank != 0 and backend() == "torch":
            report(metrics)
            return
        folder = tempfile.mkdtemp(prefix="trireme_keras_")
        sent = False
        try:
            # On every rank: strategies of TensorFlow and arrays of JAX may gather. All have the same model.
            self.model.save(os.path.join(folder, MODEL_FILE))  # type: ignore[attr-defined]
            if rank != 0:
                report(metrics)
                return
            checkpoint = Checkpoint.from_directory(folder)
            checkpoint.set_metadata({"_model_filename": MODEL_FILE, EPOCHS: self._completed()})
            report(metrics, checkpoint=checkpoint, checkpoint_upload_mode=self._mode, validation=self._validation)
            # report() deletes the folder after an asynchronous upload; local mode keeps it as the checkpoint.
            sent = self._mode is CheckpointUploadMode.ASYNC or get_context()._path is None
        finally:
            if not sent:
                shutil.rmtree(folder, ignore_errors=True)

    def _completed(self) -> int:
        """With a checkpoint of the last batch of an epoch, the data continues with the next one."""
        now = _data_epochs()
        ended = any(now.get(name, epoch) > epoch for name, epoch in self._data_epochs.items())
        return self._completed_epochs + ended


def _hook(event: str) -> Callable[..., None]:
    def with_index(self: Any, index: int, logs: Any = None) -> None:
        if event == "epoch_begin":
            self._completed_epochs, self._data_epochs = index, _data_epochs()
        elif event == "epoch_end":
            self._completed_epochs, self._data_epochs = index + 1, {}
        self._on(event, logs)

    def without_index(self: Any, logs: Any = None) -> None:
        self._on(event, logs)

    return with_index if event.startswith("epoch") or "_batch_" in event else without_index


for _event in EVENTS:
    _made = _hook(_event)
    _made.__name__ = f"on_{_event}"
    setattr(_ReportCheckpointCallback, _made.__name__, _made)


def _data_epochs() -> dict[str, int]:
    positions = current_session("ReportCheckpointCallback").positions.now()
    return {name: position["epoch"] for name, position in positions.items() if position and "epoch" in position}


def _events(argument: str, given: Events) -> list[str]:
    events = [given] if isinstance(given, str) else list(given)
    for event in events:
        if event not in EVENTS:
            raise ValueError(
                f"ReportCheckpointCallback({argument}={given!r}): unknown event {event!r}; the events are "
                f"{', '.join(EVENTS)}"
            )
    return events


def _metric_names(metrics: Metrics) -> dict[str, str] | None:
    """Names to report -> names in the logs."""
    if metrics is None:
        return None
    names = [metrics] if isinstance(metrics, str) else metrics
    named = {name: name for name in names} if isinstance(names, list) else names
    if not isinstance(named, dict) or not all(isinstance(name, str) for pair in named.items() for name in pair):
        raise TypeError(
            f"ReportCheckpointCallback(metrics={metrics!r}): expected None, a str, a list of str or a dict of str"
        )
    return named


def _plain(value: Any) -> Any:
    """Numbers of Keras' backends as those of Python."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return value.item() if getattr(value, "shape", None) == () else value
