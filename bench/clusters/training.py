"""The training functions of both frameworks: a barrier, and steps during which rank 1 is killed once."""

import os
import signal
import time
from collections.abc import Callable

from stamps import stamp

FITS = 3  # cold, warm, with a failure
_FAULT_AT, _LAST = 10, 12


def reach(fit: int) -> None:
    import torch.distributed as dist

    dist.barrier()
    stamp(f"fit_{fit}_rank_{dist.get_rank()}")


def steps(first: int, save: Callable[[int], None]) -> None:
    import torch
    import torch.distributed as dist

    broken = os.path.join(os.environ["BENCH_FOLDER"], "fault")
    for step in range(first, _LAST):
        dist.all_reduce(torch.ones(1))
        if step >= _FAULT_AT:
            stamp(f"after_rank_{dist.get_rank()}")
        if step == _FAULT_AT - 1 and dist.get_rank() == 1 and not os.path.exists(broken):
            time.sleep(3.0)  # the fault occurs in the middle of training, and after the checkpoint
            stamp("fault")
            os.kill(os.getpid(), signal.SIGKILL)
        save(step)
        if step < _FAULT_AT - 1:
            time.sleep(0.05)
