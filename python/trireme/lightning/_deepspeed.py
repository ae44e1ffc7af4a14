"""Lightning's DeepSpeedStrategy, also on workers without GPUs, where DeepSpeed works and Lightning refuses it."""

from __future__ import annotations

from typing import Any

from trireme.lightning._package import Package


def also_on_cpus(base: Any, found: Package) -> Any:
    """A class derived from Lightning's DeepSpeedStrategy, without what needs the index of a GPU."""

    class DeepSpeedStrategy(base):  # type: ignore[misc]
        def setup_environment(self) -> None:
            if self.root_device.type == "cpu":
                super(base, self).setup_environment()
            else:
                super().setup_environment()

        def setup_distributed(self) -> None:
            if self.root_device.type != "cpu":
                super().setup_distributed()
                return
            found.fabric_module("utilities.seed").reset_seed()
            self.set_world_ranks()
            self._init_deepspeed_distributed()

        def _setup_model_and_optimizer(self, model: Any, optimizer: Any, lr_scheduler: Any = None) -> Any:
            if self.root_device.type != "cpu":
                return super()._setup_model_and_optimizer(model, optimizer, lr_scheduler)
            import deepspeed

            engine, made, _, _ = deepspeed.initialize(
                config=self.config,
                model=model,
                model_parameters=[parameter for parameter in model.parameters() if parameter.requires_grad],
                optimizer=optimizer,
                lr_scheduler=lr_scheduler,
                dist_init_required=False,
            )
            return engine, made

    return DeepSpeedStrategy
