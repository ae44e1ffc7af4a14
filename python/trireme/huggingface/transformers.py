"""Ray Train's name for trireme.transformers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trireme import transformers

if TYPE_CHECKING:
    from trireme.transformers import CHECKPOINT_NAME, ReportCallback, prepare_trainer

    RayTrainReportCallback = ReportCallback

__all__ = ["CHECKPOINT_NAME", "RayTrainReportCallback", "ReportCallback", "prepare_trainer"]


def __getattr__(name: str) -> Any:
    return getattr(transformers, name)
