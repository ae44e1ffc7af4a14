"""ParameterServerStrategy: the chief runs the training function, and the other ranks run servers until it returns."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import tensorflow as tf

from trireme._context import TrainContext
from trireme._session import current_session, report

_REPORT, _END = b"report", b"end"
_FOREVER_S = 1e9


def chief_function(function: Callable[..., Any], context: TrainContext, session: Any) -> Callable[..., Any]:
    """The function, which also notifies the servers of its reports and of its end."""

    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        sent = 0

        def tell(what: bytes) -> None:
            nonlocal sent
            session.store_set(_key(context, sent), what)
            sent += 1

        own = current_session("report")
        original = own.report

        def report_and_tell(given: Any) -> None:
            original(given)
            tell(_REPORT)

        own.report = report_and_tell  # type: ignore[method-assign,assignment]
        value = function(*arguments)
        tell(_END)
        return value

    return call


def server_function(context: TrainContext, session: Any) -> Callable[..., None]:
    def serve(*_: Any) -> None:
        resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()
        server = tf.distribute.Server(
            resolver.cluster_spec(),
            job_name=resolver.task_type,
            task_index=resolver.task_id,
            protocol=resolver.rpc_layer or "grpc",
        )
        print(f"serving as {resolver.task_type} {resolver.task_id} at {server.target}", flush=True)
        # A checkpoint is committed when every rank has made the report that it belongs to.
        received = 0
        while session.store_get(_key(context, received), _FOREVER_S) == _REPORT:
            report({})
            received += 1

    return serve


def _key(context: TrainContext, number: int) -> str:
    return f"tensorflow/{context._attempt}/chief/{number}"
