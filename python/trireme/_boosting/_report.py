"""Reports of boosting rounds: metrics of every round, and checkpoints with the model."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from trireme import _core
from trireme._checkpoint import Checkpoint, _temporary_directory
from trireme._model_checkpoint import Model
from trireme._session import get_context, report

Metrics = str | list[str] | dict[str, str] | None


class RoundReporter:
    """Implements the ReportCallback of both libraries.

    metrics: None reports all; a name or a list of names reports these; a dict reports them under other names (its
        keys). A name is "<dataset>-<metric>".
    filename: of the model in a checkpoint.
    frequency: rounds between two checkpoints; 0: none before the end.
    checkpoint_at_end: save one after the last round, unless that round has one already.
    results_postprocessing_fn: maps the dict of metrics to the dict to report.
    """

    def __init__(
        self,
        metrics: Metrics = None,
        filename: str = "",
        frequency: int = 0,
        checkpoint_at_end: bool = True,
        results_postprocessing_fn: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        names = [metrics] if isinstance(metrics, str) else metrics
        if names is not None and not (isinstance(names, (list, dict)) and all(isinstance(name, str) for name in names)):
            raise TypeError(f"metrics must be a str, a list or a dict of str, got {metrics!r}")
        if isinstance(frequency, bool) or not isinstance(frequency, int) or frequency < 0:
            raise ValueError(f"frequency = {frequency!r}: expected an int, 0 or more; 0: no checkpoints before the end")
        if results_postprocessing_fn is not None and not callable(results_postprocessing_fn):
            raise TypeError(f"results_postprocessing_fn must be callable, got {results_postprocessing_fn!r}")
        self._metrics = names
        self._filename = filename
        self._frequency = frequency
        self._at_end = checkpoint_at_end
        self._postprocess = results_postprocessing_fn
        self._last: dict[str, Any] = {}
        self.saved_rounds = 0
        # Set by trainers with their own loop: what a checkpoint keeps besides the model.
        self.metadata: Callable[[], dict[str, Any]] | None = None
        # Also set by them: called on all ranks before the checkpoint of a round.
        self.before_checkpoint: Callable[[], None] | None = None

    def after_round(self, rounds: int, flat: Mapping[str, Any], save: Callable[[str], None]) -> None:
        """rounds: how many the model has. flat: the metrics by "<dataset>-<metric>". save: writes the model."""
        self._last = self._selected(flat)
        # LightGBM's rounds without a split do not add to the model.
        if self._frequency and rounds % self._frequency == 0 and rounds != self.saved_rounds:
            if self.before_checkpoint is not None:
                self.before_checkpoint()
            self._report_checkpoint(rounds, save)
        else:
            report(dict(self._last))

    def after_training(self, rounds: int, save: Callable[[str], None]) -> None:
        if self._at_end and rounds and rounds != self.saved_rounds:
            self._report_checkpoint(rounds, save)

    def _selected(self, flat: Mapping[str, Any]) -> dict[str, Any]:
        chosen = dict(flat)
        if self._metrics is not None:
            wanted = self._metrics if isinstance(self._metrics, dict) else {name: name for name in self._metrics}
            if missing := sorted(set(wanted.values()) - flat.keys()):
                known = ", ".join(flat) or "none: pass evals, or a dataset besides 'train'"
                raise KeyError(f"ReportCallback(metrics=...): no metric {', '.join(missing)}; the metrics are: {known}")
            chosen = {name: flat[source] for name, source in wanted.items()}
        return chosen if self._postprocess is None else self._postprocess(chosen)

    def _report_checkpoint(self, rounds: int, save: Callable[[str], None]) -> None:
        self.saved_rounds = rounds
        # All ranks have the same model, and a report of each: the commit waits for the one of rank 0.
        if get_context().get_world_rank() != 0:
            report(dict(self._last))
            return
        # Local mode keeps the folder as the checkpoint.
        temporary = None if get_context()._path is None else _core.TemporaryFolder()
        folder = _temporary_directory(keep=True) if temporary is None else temporary.path
        save(os.path.join(folder, self._filename))
        checkpoint = Checkpoint.from_directory(folder)
        if self.metadata is not None:
            checkpoint.set_metadata(self.metadata())
        report(dict(self._last), checkpoint=checkpoint)


def stored_model(checkpoint: Checkpoint, filename: str, made_by: str, load: Callable[[str], Model]) -> Model:
    with checkpoint.as_directory() as folder:
        path = os.path.join(folder, filename)
        if not os.path.isfile(path):
            found = ", ".join(sorted(os.listdir(folder))) or "nothing"
            raise FileNotFoundError(
                f"{checkpoint.path} has no {filename}, only {found}: it was not created by {made_by}, or with another "
                "filename=..."
            )
        return load(path)
