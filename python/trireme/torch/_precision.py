"""Ray Train's older helpers for mixed precision: accelerate(), prepare_optimizer(), backward()."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from trireme._session import current_session
from trireme.torch._device import devices_of
from trireme.torch._settings import settings_of


class Precision:
    """Autocast to a type. float16 also uses a GradScaler, because small gradients underflow."""

    def __init__(self, device_type: str, dtype: torch.dtype) -> None:
        self.device_type = device_type
        self.dtype = dtype
        self.scaler = torch.amp.GradScaler(device_type) if dtype is torch.float16 else None

    def apply_to(self, model: torch.nn.Module) -> None:
        """Changes the model in place, so that the names of parameters stay the same."""
        model.forward = AutocastForward(model, self.device_type, self.dtype)


class AutocastForward:
    """Replaces a module's forward(). A class, not a closure, so that the module can be pickled and copied."""

    def __init__(self, model: torch.nn.Module, device_type: str, dtype: torch.dtype) -> None:
        self._model = model
        self._own = model.__dict__.get("forward")
        self._device_type = device_type
        self._dtype = dtype

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with torch.autocast(self._device_type, self._dtype):
            if self._own is not None:
                return self._own(*args, **kwargs)
            return type(self._model).forward(self._model, *args, **kwargs)


class ScaledOptimizer(torch.optim.Optimizer):  # type: ignore[misc]
    """An optimizer whose step() uses the scaler, which skips steps with overflown gradients."""

    def __init__(self, optimizer: torch.optim.Optimizer, scaler: torch.amp.GradScaler) -> None:
        # Does not call Optimizer.__init__(): groups and state belong to the wrapped optimizer.
        self.optimizer = optimizer
        self.scaler = scaler

    def __getattr__(self, name: str) -> Any:
        return getattr(self.optimizer, name)

    def __getstate__(self) -> dict[str, Any]:
        return {"optimizer": self.optimizer, "scaler": self.scaler}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __repr__(self) -> str:
        return f"ScaledOptimizer({self.optimizer!r})"

    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        if closure is not None:
            raise RuntimeError("step(closure) is not supported with float16, which scales gradients; use bfloat16")
        loss: float | None = self.scaler.step(self.optimizer)
        self.scaler.update()
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optimizer.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = self.optimizer.state_dict()
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state_dict)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        self.optimizer.add_param_group(param_group)


def accelerate(amp: bool | torch.dtype = False) -> None:
    """Enable mixed precision for models and optimizers prepared afterwards. Call it once, before prepare_model().

    amp: True for float16 with a GradScaler on a GPU and bfloat16 on the CPU; or the type itself.
    """
    session = current_session("accelerate")
    settings = settings_of(session)
    if settings.precision is not None:
        raise RuntimeError("accelerate() was already called; call it once per training function")
    if amp is False:
        return
    device = devices_of(session.context)[0]
    dtype = (torch.float16 if device.type == "cuda" else torch.bfloat16) if amp is True else amp
    if dtype not in (torch.float16, torch.bfloat16):
        raise ValueError(f"accelerate(amp={amp!r}): expected a bool, torch.float16 or torch.bfloat16")
    settings.precision = Precision(device.type, dtype)


def prepare_optimizer(optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer:
    """Wrap the optimizer for the precision set by accelerate(). Returns it unchanged if it needs no wrapper."""
    precision = settings_of(current_session("prepare_optimizer")).precision
    if precision is None or precision.scaler is None:
        return optimizer
    if isinstance(optimizer, ScaledOptimizer):
        raise ValueError("prepare_optimizer(): this optimizer is already prepared; prepare it once and keep the result")
    return ScaledOptimizer(optimizer, precision.scaler)


def backward(tensor: torch.Tensor) -> None:
    """Call tensor.backward(). Scales the loss if the precision set by accelerate() requires it."""
    precision = settings_of(current_session("backward")).precision
    if precision is not None and precision.scaler is not None:
        tensor = precision.scaler.scale(tensor)
    tensor.backward()
