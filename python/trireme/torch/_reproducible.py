from __future__ import annotations

import os
import random

import torch

from trireme._session import current_session
from trireme.torch._settings import settings_of


def enable_reproducibility(seed: int = 0) -> None:
    """Seed torch, Python and numpy equally on every worker, and make torch raise on nondeterministic operations.

    Loaders prepared afterwards shuffle with this seed.
    """
    settings_of(current_session("enable_reproducibility")).seed = seed
    torch.manual_seed(seed)
    random.seed(seed)
    try:
        import numpy
    except ImportError:
        pass
    else:
        numpy.random.seed(seed % 2**32)
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    # Required for deterministic cuBLAS.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
