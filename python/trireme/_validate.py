"""The process that validates one checkpoint: `python -m trireme._validate TASK_FD ANSWER_FD`, started by fit()."""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import os
import pickle
import signal
import sys
import traceback
import types
from functools import partial

from trireme import _ship
from trireme._compat import prepare_compat
from trireme._errors import one_line
from trireme._forked import call_ending_forks
from trireme._validation import checked_metrics

_PR_SET_PDEATHSIG = 1


def main(task: int, answer: int) -> int:
    faulthandler.enable()  # same as in workers
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    with open(task, "rb") as file:
        driver, function, arguments = pickle.load(file)
    if os.getppid() != driver:
        return 1  # the driver exited before prctl() took effect
    sys.modules["__main__"] = types.ModuleType("__main__")  # as in workers
    metrics, error, may_retry = {}, None, False
    retried: tuple[type[BaseException], ...] = ()
    # The boundary to user code: any exception is a failure of this validation.
    try:
        prepare_compat()
        fn, _, _ = _ship.unpack(function)
        checkpoint, kwargs, retried = pickle.loads(arguments)
        metrics = checked_metrics(call_ending_forks(partial(fn, checkpoint, **kwargs)))
    except BaseException as failure:
        with contextlib.suppress(OSError):  # a full disk must not hide the error
            traceback.print_exc()
        error = f"{type(failure).__name__}: {one_line(failure)}"
        may_retry = isinstance(failure, retried)
    with open(answer, "wb") as file:
        pickle.dump((metrics, error, may_retry), file)
    return 0 if error is None else 1


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
