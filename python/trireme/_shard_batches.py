"""Recognizes batches of a dataset's shard among the loaders that users pass to a framework."""

from __future__ import annotations

import sys
from typing import Any


def are_shard_batches(loader: Any) -> bool:
    """Whether it comes from iter_torch_batches() or similar. Does not import trireme.data, which needs pyarrow."""
    module = sys.modules.get("trireme.data._iterator")
    return module is not None and isinstance(loader, module.Batches)
