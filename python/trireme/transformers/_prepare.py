"""prepare_trainer(): datasets of the run as datasets of the HF Trainer, and arguments that fit the workers."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import torch
import transformers
from torch.utils.data import IterableDataset

from trireme._core import count_of
from trireme._extras import require_package
from trireme._session import current_session
from trireme._shard_batches import are_shard_batches
from trireme.transformers._evaluate import EvenEvaluation, as_loader, evaluation_loader

require_package("transformers", ("5.",))


def prepare_trainer(trainer: Any) -> Any:
    """Returns the trainer, ready to train one model on all workers.

    train_dataset, eval_dataset (also a dict of them) and the argument of predict() may be batches of a shard:
    `get_dataset_shard("train").iter_torch_batches(batch_size=16)`. The HF Trainer divides other datasets among the
    workers itself. Arguments that contradict the workers (device, backend, number of processes) are refused.
    """
    if not isinstance(trainer, transformers.Trainer):
        raise TypeError(f"prepare_trainer() expects a transformers.Trainer, got {type(trainer).__name__}")
    _check_arguments(trainer, current_session("prepare_trainer").context)
    if are_shard_batches(trainer.train_dataset):
        # The shard itself resumes at the position in the checkpoint.
        trainer.args.ignore_data_skip = True
    kind: Any = type(trainer)
    trainer.__class__ = _class_for(kind)
    return trainer


@functools.cache
def _class_for(base: Any) -> type:
    class ShardTrainer(base):  # type: ignore[misc]
        def get_train_dataloader(self) -> Any:
            if are_shard_batches(self.train_dataset):
                return as_loader(_Batches(self.train_dataset))
            return super().get_train_dataloader()

        def get_eval_dataloader(self, eval_dataset: Any = None) -> Any:
            given = self.eval_dataset if eval_dataset is None else eval_dataset
            if isinstance(given, str):
                given = self.eval_dataset[given]
            return evaluation_loader(given) if are_shard_batches(given) else super().get_eval_dataloader(eval_dataset)

        def get_test_dataloader(self, test_dataset: Any) -> Any:
            if are_shard_batches(test_dataset):
                return evaluation_loader(test_dataset)
            return super().get_test_dataloader(test_dataset)

        def evaluation_loop(self, dataloader: Any, *arguments: Any, **options: Any) -> Any:
            if not isinstance(dataloader.dataset, EvenEvaluation):
                return super().evaluation_loop(dataloader, *arguments, **options)
            # The original resets it at the end.
            self.gather_function = functools.partial(dataloader.dataset.gather, self.accelerator)
            # Otherwise the loss of a batch is divided by the tokens of all workers, repeated rows included.
            average, self.args.average_tokens_across_devices = self.args.average_tokens_across_devices, False
            try:
                return super().evaluation_loop(dataloader, *arguments, **options)
            finally:
                self.args.average_tokens_across_devices = average

    ShardTrainer.__name__, ShardTrainer.__qualname__ = base.__name__, base.__qualname__
    ShardTrainer.__module__ = base.__module__
    return ShardTrainer


class _Batches(IterableDataset):  # type: ignore[misc]
    def __init__(self, batches: Any) -> None:
        self._batches = batches

    def __iter__(self) -> Iterator[Any]:
        return iter(self._batches)


def _check_arguments(trainer: Any, context: Any) -> None:
    """Raises an error for TrainingArguments that contradict the workers."""
    args = trainer.args
    if context._gpus and args.device.type == "cpu":
        raise ValueError(
            "prepare_trainer(): TrainingArguments(use_cpu=True) contradicts ScalingConfig(use_gpu=True): the GPUs of "
            "the workers would be idle; remove one of them"
        )
    backend = torch.distributed.get_backend()
    if args.ddp_backend and args.ddp_backend not in (backend, backend.rpartition(":")[2]):
        raise ValueError(
            f"prepare_trainer(): TrainingArguments(ddp_backend={args.ddp_backend!r}) contradicts the process group of "
            f"the workers, which uses {backend!r}; remove it, or pass TorchTrainer(torch_config=TorchConfig(backend="
            f"{args.ddp_backend!r}))"
        )
    if args.world_size != context.get_world_size():
        raise ValueError(
            f"prepare_trainer(): TrainingArguments has found {count_of(args.world_size, 'process')} and the run has "
            f"{count_of(context.get_world_size(), 'worker')}; create it in the training function"
        )
    if getattr(args, "enable_jit_checkpoint", False):
        raise ValueError(
            "prepare_trainer(): TrainingArguments(enable_jit_checkpoint=True) would replace the handler of SIGTERM, "
            "which announces preemptions to Trireme; remove it, and use ReportCallback(on_preemption=True)"
        )
