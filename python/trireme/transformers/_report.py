"""ReportCallback: every checkpoint that the HF Trainer saves becomes a checkpoint of the run."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from transformers import TrainerCallback
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR

from trireme import collective
from trireme._checkpoint import Checkpoint
from trireme._preemption_watch import PreemptionWatch
from trireme._report import CheckpointUploadMode, mode_of_callback
from trireme._session import current_session, report
from trireme._validation import ValidationTaskConfig


class ReportCallback(TrainerCallback):  # type: ignore[misc]
    """Reports at every save (`save_strategy`, `save_steps`): the newest value of every metric that was logged, and the
    HF checkpoint in the folder `checkpoint`, for `trainer.train(resume_from_checkpoint=...)`.

    on_preemption: save and report when a preemption is announced. Training continues until the workers are
        replaced.
    checkpoint_upload_mode: SYNC waits until the files are stored, ASYNC stores them while training continues.
    validation: as in trireme.report().
    """

    CHECKPOINT_NAME = "checkpoint"

    def __init__(
        self,
        *,
        on_preemption: bool = True,
        checkpoint_upload_mode: CheckpointUploadMode = CheckpointUploadMode.SYNC,
        validation: bool | ValidationTaskConfig = False,
    ) -> None:
        super().__init__()
        self._preemptions = PreemptionWatch() if on_preemption else None
        self._mode = mode_of_callback("ReportCallback", checkpoint_upload_mode)
        self._validation = validation

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> Any:
        if self._preemptions and self._preemptions.step():
            control.should_save = True
        return control

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        metrics: dict[str, Any] = {}
        for entry in state.log_history:
            metrics |= entry
        metrics |= {"epoch": state.epoch, "step": state.global_step}
        saved = Path(args.output_dir, f"{PREFIX_CHECKPOINT_DIR}-{state.global_step}")
        # Every rank adds files to the folder: the states of its random numbers, and its shards.
        collective.barrier()
        context = current_session("ReportCallback").context
        if context.get_world_rank() != 0:
            report(metrics)
            return
        folder = Path(tempfile.mkdtemp(prefix=".trireme_", dir=args.output_dir))
        asynchronous = self._mode is CheckpointUploadMode.ASYNC
        try:
            _link_tree(saved, folder / self.CHECKPOINT_NAME)
            report(
                metrics,
                checkpoint=Checkpoint.from_directory(folder),
                checkpoint_upload_mode=self._mode,
                validation=self._validation,
            )
        except BaseException:
            asynchronous = False
            raise
        finally:
            if not asynchronous:  # otherwise report() deletes it after the upload
                shutil.rmtree(folder, ignore_errors=True)


def _link_tree(source: Path, target: Path) -> None:
    """A copy without copying: save_total_limit may delete the original while it is uploaded."""

    def link(one: str, other: str) -> None:
        try:
            os.link(one, other)
        except OSError:  # another file system, or one without links
            shutil.copy2(one, other)

    shutil.copytree(source, target, copy_function=link)
