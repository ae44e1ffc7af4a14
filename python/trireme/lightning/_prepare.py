"""prepare_trainer(): makes sure that the trainers of all workers train one model."""

from __future__ import annotations

from typing import Any

from trireme._session import current_session
from trireme.lightning._package import LIGHTNING, PYTORCH_LIGHTNING, package_of
from trireme.lightning._strategies import STRATEGIES, classes_of


def prepare_trainer(trainer: Any) -> Any:
    """Returns the trainer, ready to train one model on all workers.

    A trainer without a strategy (`devices="auto"`, `devices=1`), or with Lightning's own DDP strategy, gets this
    package's DDPStrategy, which uses the process group of the worker. Other strategies are refused by name.
    """
    found = package_of(trainer)
    if found is None:
        names = f"{LIGHTNING.pytorch}.Trainer or a {PYTORCH_LIGHTNING.pytorch}.Trainer"
        raise TypeError(f"prepare_trainer() expects a {names}, got {type(trainer).__module__}.{type(trainer).__name__}")
    current_session("prepare_trainer")  # raises outside of a training function
    ours = classes_of(found)
    strategies = found.module("strategies")
    strategy = trainer.strategy
    if isinstance(strategy, tuple(getattr(ours, name) for name in STRATEGIES)):
        _use_environment(trainer, ours)
    elif type(strategy) in (strategies.SingleDeviceStrategy, strategies.DDPStrategy):  # subclasses differ from them
        _replace(trainer, ours)
    else:
        name = type(strategy).__name__
        fix = (
            f"strategy=trireme.lightning.{name}(...)"
            if hasattr(ours, name)
            else "strategy=trireme.lightning.DDPStrategy(), or a class derived from it"
        )
        raise ValueError(
            f"prepare_trainer(): Trainer(strategy={name}) does not use the process group of this worker; pass {fix}"
        )
    return trainer


def _use_environment(trainer: Any, ours: Any) -> None:
    connector, strategy = trainer._accelerator_connector, trainer.strategy
    given = connector._cluster_environment_flag or strategy.cluster_environment
    if not isinstance(given, ours.LightningEnvironment):
        raise ValueError(
            f"prepare_trainer(): Trainer(plugins=[{type(given).__name__}()]) contradicts the workers of the run; leave "
            "it out, or pass plugins=[trireme.lightning.LightningEnvironment()]"
        )
    connector.cluster_environment = strategy.cluster_environment


def _replace(trainer: Any, ours: Any) -> None:
    """Gives the trainer a DDPStrategy with all the settings that it got from its arguments."""
    connector, before = trainer._accelerator_connector, trainer.strategy
    options = dict(getattr(before, "_ddp_kwargs", {}))
    for name in ("ddp_comm_state", "ddp_comm_hook", "ddp_comm_wrapper", "model_averaging_period"):
        if getattr(before, f"_{name}", None) is not None:
            options[name] = getattr(before, f"_{name}")
    made = ours.DDPStrategy(cluster_environment=ours.LightningEnvironment(), **options)
    connector._strategy_flag = connector.strategy = made
    connector._parallel_devices = [made.root_device]
    connector.cluster_environment = made.cluster_environment
    connector._lazy_init_strategy()
