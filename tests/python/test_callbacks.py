from __future__ import annotations

from typing import Any

import pytest

import trireme
from trireme import (
    Checkpoint,
    ControllerError,
    DataParallelTrainer,
    FailureConfig,
    RunConfig,
    ScalingConfig,
    UserCallback,
    WorkerGroupError,
)
from trireme._storage import Location
from trireme.backend import BackendConfig
from trireme.callbacks import CallbackCaller, RunContext


class Recorder(UserCallback):
    def __init__(self) -> None:
        self.contexts: list[Any] = []
        self.reports: list[tuple[list[dict[str, Any]], Checkpoint | None]] = []
        self.exceptions: list[dict[int, Exception]] = []

    def after_report(self, run_context: Any, metrics: Any, checkpoint: Any) -> None:
        self.contexts.append(run_context)
        self.reports.append((metrics, checkpoint))

    def after_exception(self, run_context: Any, worker_exceptions: Any) -> None:
        self.exceptions.append(worker_exceptions)


def fit(function: Any, callback: UserCallback, workers: int = 2, **run: Any) -> trireme.Result:
    config = RunConfig(callbacks=[callback], **run)
    return DataParallelTrainer(function, scaling_config=ScalingConfig(num_workers=workers), run_config=config).fit()


def make_context() -> RunContext:
    return RunContext("id", RunConfig(), ScalingConfig(), None, BackendConfig(), None)


def test_reports_of_all_ranks_together_in_rank_order() -> None:
    def train() -> None:
        for step in range(3):
            trireme.report({"step": step, "rank": trireme.get_context().get_world_rank()})

    recorder = Recorder()
    fit(train, recorder, 3, name="told")
    assert [metrics for metrics, _ in recorder.reports] == [
        [{"step": step, "rank": rank} for rank in range(3)] for step in range(3)
    ]
    assert recorder.contexts[0].run_config.name == "told"
    assert recorder.contexts[0].scaling_config.num_workers == 3
    assert recorder.contexts[0].run_id


def test_reports_of_one_rank_only() -> None:
    def train() -> None:
        if trireme.get_context().get_world_rank() == 0:
            for step in range(5):
                trireme.report({"step": step})

    recorder = Recorder()
    fit(train, recorder)
    assert [metrics for metrics, _ in recorder.reports] == [[{"step": step}] for step in range(5)]


def test_a_rank_that_never_reports_does_not_block_the_others() -> None:
    recorder = Recorder()
    caller = CallbackCaller([recorder], make_context(), Location("/run"))
    caller.handle({"time": 0.0, "event": "attempt_started", "attempt": 0, "num_workers": 2})
    for second in range(10):
        metrics = {"step": second}
        caller.handle({"time": second, "event": "report", "rank": 0, "index": second, "metrics": metrics})
    assert [metrics[0]["step"] for metrics, _ in recorder.reports] == [0, 1, 2, 3]
    caller.handle({"time": 10.0, "event": "report", "rank": 1, "index": 0, "metrics": {}})
    caller.handle({"time": 20.0, "event": "warning", "message": ""})
    assert len(recorder.reports) == 4, "callbacks wait for a rank that has reported before"
    caller.handle({"time": 20.0, "event": "worker_finished", "rank": 1})
    assert len(recorder.reports) > 4


class Ordered(Recorder):
    def __init__(self) -> None:
        super().__init__()
        self.order: list[str] = []

    def after_report(self, run_context: Any, metrics: Any, checkpoint: Any) -> None:
        self.order.append(f"report {run_context.report_index}")

    def after_exception(self, run_context: Any, worker_exceptions: Any) -> None:
        self.order.append("exception")


@pytest.mark.parametrize("next_event", ["checkpoint_committed", "attempt_started", "run_finished"])
def test_an_exception_comes_after_the_reports_before_it(next_event: str) -> None:
    """A checkpoint that all ranks have reported may be committed after the failure."""
    recorder = Ordered()
    caller = CallbackCaller([recorder], make_context(), Location("/run"))
    caller.handle({"time": 0.0, "event": "attempt_started", "attempt": 0, "num_workers": 2})
    for rank in range(2):
        report = {"time": 1.0, "event": "report", "rank": rank, "index": 0, "metrics": {}}
        caller.handle({**report, "checkpoint": "checkpoint_000000"} if rank == 0 else report)
    caller.handle({"time": 2.0, "event": "attempt_failed"})
    assert recorder.order == []
    caller.handle({"time": 3.0, "event": next_event, "index": 0, "name": "checkpoint_000000", "num_workers": 2})
    assert recorder.order == (["report 0", "exception"] if next_event == "checkpoint_committed" else ["exception"])


def test_an_exception_does_not_wait_for_a_checkpoint_that_a_rank_has_not_reported() -> None:
    recorder = Ordered()
    caller = CallbackCaller([recorder], make_context(), Location("/run"))
    caller.handle({"time": 0.0, "event": "attempt_started", "attempt": 0, "num_workers": 2})
    report = {"time": 1.0, "event": "report", "rank": 0, "index": 0, "metrics": {}, "checkpoint": "checkpoint_000000"}
    caller.handle(report)
    caller.handle({"time": 2.0, "event": "attempt_failed"})
    assert recorder.order == ["exception"]


def test_checkpoints_come_with_their_report() -> None:
    def train() -> None:
        import tempfile

        trireme.report({"step": 0})
        trireme.report({"step": 1}, checkpoint=Checkpoint(tempfile.mkdtemp()))

    recorder = Recorder()
    result = fit(train, recorder, 1)
    assert [metrics[0]["step"] for metrics, _ in recorder.reports] == [0, 1]
    assert recorder.reports[0][1] is None
    assert recorder.reports[1][1] is not None
    assert result.checkpoint is not None
    assert recorder.reports[1][1].path == result.checkpoint.path


def test_exceptions_of_every_attempt() -> None:
    def train() -> None:
        raise ValueError("always")

    recorder = Recorder()
    with pytest.raises(WorkerGroupError):
        fit(train, recorder, 1, failure_config=FailureConfig(max_failures=1))
    assert len(recorder.exceptions) == 2
    assert all(isinstance(error, ValueError) for errors in recorder.exceptions for error in errors.values())
    assert "always" in str(recorder.exceptions[0][0])


def test_a_callback_that_raises_ends_the_run() -> None:
    class Broken(UserCallback):
        def after_report(self, run_context: Any, metrics: Any, checkpoint: Any) -> None:
            raise KeyError("in my callback")

    def train() -> None:
        import time

        trireme.report({"a": 1})
        time.sleep(600)

    with pytest.raises(ControllerError) as caught:
        fit(train, Broken())
    assert isinstance(caught.value.__cause__, KeyError)
    assert "in my callback" in str(caught.value)


class Diary(UserCallback):
    def __init__(self) -> None:
        self.entries: list[Any] = []

    def before_run(self, run_context: RunContext) -> None:
        self.entries.append(("before", run_context.resumed, run_context.path))

    def after_report(self, run_context: RunContext, metrics: Any, checkpoint: Any) -> None:
        self.entries.append(("report", run_context.report_index))

    def after_run(self, run_context: RunContext, error: BaseException | None) -> None:
        self.entries.append(("after", error))


def test_begin_and_end_of_a_run() -> None:
    diary = Diary()
    result = fit(lambda: trireme.report({"a": 1}), diary, 1, name="told")
    fit(lambda: None, diary, 1, name="told")
    assert diary.entries == [
        ("before", False, result.path),
        ("report", 0),
        ("after", None),
        ("before", True, result.path),
        ("after", None),
    ]


def test_the_end_of_a_run_that_failed() -> None:
    def train() -> None:
        raise ValueError("always")

    diary = Diary()
    with pytest.raises(WorkerGroupError) as caught:
        fit(train, diary, 1)
    assert diary.entries[-1] == ("after", caught.value)


def test_a_callback_that_raises_before_the_run_ends_it() -> None:
    class Broken(Diary):
        def before_run(self, run_context: RunContext) -> None:
            raise OSError("no server")

    def train() -> None:
        import time

        time.sleep(600)

    diary = Diary()
    with pytest.raises(ControllerError, match="no server"):
        config = RunConfig(callbacks=[diary, Broken()])
        DataParallelTrainer(train, run_config=config).fit()
    assert [entry[0] for entry in diary.entries] == ["before", "after"]


def test_a_callback_that_raises_at_the_end(capsys: pytest.CaptureFixture[str]) -> None:
    class Broken(UserCallback):
        def after_run(self, run_context: RunContext, error: BaseException | None) -> None:
            raise KeyError("in after_run")

    def train() -> None:
        raise ValueError("always")

    diary = Diary()
    config = RunConfig(callbacks=[Broken(), diary])
    with pytest.raises(ControllerError, match="in after_run"):
        DataParallelTrainer(lambda: None, run_config=config).fit()
    assert diary.entries[-1] == ("after", None)
    with pytest.raises(WorkerGroupError, match="always"):
        DataParallelTrainer(train, run_config=config).fit()
    assert "KeyError in a callback's after_run()" in capsys.readouterr().out
