"""ReportCallback: metrics and checkpoints of a Lightning trainer become reports of the worker."""

from __future__ import annotations

import os
import shutil
import tempfile
from functools import cache
from typing import TYPE_CHECKING, Any

import torch.distributed as dist

from trireme._checkpoint import Checkpoint
from trireme._preemption_watch import PreemptionWatch
from trireme._report import CheckpointUploadMode, mode_of_callback
from trireme._session import report
from trireme._validation import ValidationTaskConfig
from trireme.lightning._package import Package, package
from trireme.torch._group import gathered
from trireme.torch._random_states import random_states, set_random_states

if TYPE_CHECKING:
    ReportCallback = Any

_RANDOM_STATES = "trireme_random_states"


def report_callback_class() -> Any:
    return _class_of(package())


@cache
def _class_of(found: Package) -> Any:
    """Pickled by name: a worker makes its own."""
    made = type("ReportCallback", (_ReportCallback, found.module().Callback), {"__module__": "trireme.lightning"})
    made.__doc__ = _ReportCallback.__doc__
    return made


class _ReportCallback:
    """Reports the trainer's metrics with a checkpoint that `trainer.fit(ckpt_path=...)` resumes from.

    every_n_train_steps: report after this number of optimizer steps, in the middle of an epoch.
    on_train_epoch_end: report at the end of every epoch.
    on_validation_end: report after every validation, with its metrics.
    on_preemption: report a checkpoint when a preemption is announced. Training continues until the workers are
        replaced.
    save_checkpoint: False reports metrics only.
    checkpoint_upload_mode: SYNC waits until the file is stored, ASYNC stores it while training continues.
    validation: as in trireme.report().
    """

    CHECKPOINT_NAME = "checkpoint.ckpt"

    def __init__(
        self,
        *,
        every_n_train_steps: int | None = None,
        on_train_epoch_end: bool = True,
        on_validation_end: bool = False,
        on_preemption: bool = True,
        save_checkpoint: bool = True,
        checkpoint_upload_mode: CheckpointUploadMode | None = None,
        validation: bool | ValidationTaskConfig = False,
    ) -> None:
        if every_n_train_steps is not None and (
            isinstance(every_n_train_steps, bool) or not isinstance(every_n_train_steps, int) or every_n_train_steps < 1
        ):
            raise ValueError(
                f"ReportCallback(every_n_train_steps={every_n_train_steps!r}): expected a positive integer"
            )
        self._mode = mode_of_callback("ReportCallback", checkpoint_upload_mode)
        if not (every_n_train_steps or on_train_epoch_end or on_validation_end):
            raise ValueError(
                "ReportCallback() would never report: set every_n_train_steps, on_train_epoch_end or on_validation_end"
            )
        super().__init__()
        self._every_n_train_steps = every_n_train_steps
        self._at_epoch_end = on_train_epoch_end
        self._after_validation = on_validation_end
        self._preemptions = PreemptionWatch() if on_preemption else None
        self._saves = save_checkpoint
        self._validation = validation
        self._reported_step = -1
        self._reports = False
        self._random_states: dict[str, Any] | None = None

    def on_save_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        # Not in checkpoints of other callbacks: one that saves on a single rank would wait for the others.
        if self._reports:
            mine = random_states()
            checkpoint[_RANDOM_STATES] = gathered(mine) if dist.is_initialized() else [mine] * trainer.world_size

    def on_load_checkpoint(self, trainer: Any, pl_module: Any, checkpoint: dict[str, Any]) -> None:
        every = checkpoint.get(_RANDOM_STATES, [])
        if trainer.state.fn == "fit" and trainer.global_rank < len(every):
            self._random_states = every[trainer.global_rank]

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        self._restore_random_states()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        # In the middle of an epoch this comes first. What happens before it, as creating the iterator of a loader,
        # draws numbers that the interrupted epoch has drawn already.
        self._restore_random_states()

    def _restore_random_states(self) -> None:
        if self._random_states is not None:
            set_random_states(self._random_states)
            self._random_states = None

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        step = trainer.global_step
        if self._every_n_train_steps and step % self._every_n_train_steps == 0 and step != self._reported_step:
            self._report(trainer)
        if self._preemptions and self._preemptions.step() and step != self._reported_step:
            self._report(trainer)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        if self._at_epoch_end:
            self._report(trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        if self._after_validation and not trainer.sanity_checking:
            self._report(trainer)

    def _report(self, trainer: Any) -> None:
        self._reported_step = trainer.global_step
        metrics = {name: value.item() for name, value in trainer.callback_metrics.items()}
        metrics |= {"epoch": trainer.current_epoch, "step": trainer.global_step}
        if not self._saves:
            report(metrics)
            return
        folder = tempfile.mkdtemp(prefix="trireme_lightning_")
        sent = False
        self._reports = True
        try:
            # On every rank: a sharded strategy stores the part of each.
            trainer.save_checkpoint(os.path.join(folder, self.CHECKPOINT_NAME))
            if os.listdir(folder):
                report(
                    metrics,
                    checkpoint=Checkpoint.from_directory(folder),
                    checkpoint_upload_mode=self._mode,
                    validation=self._validation,
                )
                sent = self._mode is CheckpointUploadMode.ASYNC  # report() deletes the folder after the upload
            else:
                report(metrics)
        finally:
            self._reports = False
            if not sent:
                shutil.rmtree(folder, ignore_errors=True)
