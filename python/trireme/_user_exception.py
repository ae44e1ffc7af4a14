"""Sends exceptions of user code to another process."""

from __future__ import annotations

import os
import traceback
import types

import cloudpickle

_PACKAGE = os.path.dirname(os.path.abspath(__file__))


def dump_exception(error: BaseException) -> bytes | None:
    """None if the other process could not load it, for example if its __init__ needs more than its args."""
    try:
        dumped: bytes = cloudpickle.dumps(error)
        cloudpickle.loads(dumped)
    except BaseException:
        return None
    return dumped


def format_exception(error: BaseException) -> str:
    """The traceback starting at the user's function, without Trireme's own frames above it."""
    trace: types.TracebackType | None = error.__traceback__
    while trace and trace.tb_next and trace.tb_frame.f_code.co_filename.startswith(_PACKAGE):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace))
