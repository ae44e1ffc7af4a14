"""An exception of the user's code on its way to another process."""

from __future__ import annotations

import os
import traceback
import types

import cloudpickle

_PACKAGE = os.path.dirname(os.path.abspath(__file__))


def dump_exception(error: BaseException) -> bytes | None:
    """None where the other side could not load it: one whose __init__ wants more than its args, for example."""
    try:
        dumped: bytes = cloudpickle.dumps(error)
        cloudpickle.loads(dumped)
    except BaseException:
        return None
    return dumped


def format_exception(error: BaseException) -> str:
    """The traceback from the user's function on; the frames that lead to it are ours and say nothing."""
    trace: types.TracebackType | None = error.__traceback__
    while trace and trace.tb_next and trace.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))
