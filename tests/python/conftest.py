from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

import processes
import trireme
from s3_server import Bucket, S3Server
from trireme import RunConfig

# Slow example generation only shows that the machine is under load.
settings.register_profile("trireme", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("trireme")

# What workers of torch tests import anyway: once in the warm process instead of in every worker.
TORCH_MODULES = [
    "torch._dynamo",
    "torch.distributed.checkpoint.state_dict",
    "torch.distributed.fsdp",
    "torch.distributed.tensor.parallel",
    "trireme.torch._backend",
    "trireme.torch._loader",
    "trireme.torch._model",
    "trireme.torch._precision",
    "trireme.torch._sharded",
]

# A shell ignores Ctrl-C for background jobs, and every child would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Without torch tests, skips files that have no others: importing them imports torch."""
    if "not torch" not in config.getoption("markexpr") or collection_path.suffix != ".py":
        return None
    return True if re.search(r"^pytestmark = \[?\s*pytest\.mark\.torch\b", collection_path.read_text(), re.M) else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slow ones first: the last ones to run should be short, so that all processes of the suite end together. Those
    that declare resources last: they end the warm process, and the next one imports torch again."""
    items.sort(key=lambda item: (item.get_closest_marker("slow") is None, "declared" in item.fixturenames))  # type: ignore[attr-defined]


@pytest.fixture(autouse=True, scope="session")
def state_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One per session: the runtime is shared by the tests."""
    folder = tmp_path_factory.mktemp("state")
    os.environ["TRIREME_STATE_DIR"] = str(folder)
    return folder


@pytest.fixture(autouse=True)
def results(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "results"
    monkeypatch.setenv("TRIREME_RESULTS", str(folder))
    for name in [name for name in os.environ if name.startswith(("TRIREME_NUM_", "TRIREME_RUN_", "TRIREME_RESOURCES"))]:
        monkeypatch.delenv(name)
    # Test modules import pytest, and workers import the module of their function.
    preload = ["pytest", *(TORCH_MODULES if request.node.get_closest_marker("torch") else [])]
    monkeypatch.setenv("TRIREME_RUN_PRELOAD", ",".join(preload))
    return folder


@pytest.fixture(autouse=True)
def no_orphans() -> Iterator[None]:
    yield
    assert processes.wait_until(lambda: not processes.left_over()), processes.left_over()


@pytest.fixture
def declared(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """trireme.init() for one test. Its warm processes, one on each node, only import frameworks that the test uses:
    those that earlier tests of this process have imported would take several CPU seconds each."""
    if not request.node.get_closest_marker("torch"):
        monkeypatch.setattr("trireme._trainer.frameworks_imported", list)
    trireme.shutdown()
    yield trireme.init
    trireme.shutdown()


@pytest.fixture
def run_config(results: Path) -> RunConfig:
    return RunConfig(name="run", storage_path=results)


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    pytest.importorskip("pyarrow")
    pytest.importorskip("moto")
    server = S3Server(tmp_path_factory.mktemp("s3"))
    yield server
    server.stop()


@pytest.fixture
def bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    made = Bucket(s3_server)
    for name, value in made.variables.items():
        monkeypatch.setenv(name, value)
    return made


class Script:
    """A separate driver process: written to a folder, run by this Python."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.started: list[subprocess.Popen[str]] = []

    def write(self, source: str, name: str = "script.py") -> Path:
        path = self.folder / name
        path.write_text(textwrap.dedent(source))
        return path

    def start(self, source: str, *arguments: str, command: list[str] | None = None, **options: Any) -> Any:
        path = self.write(source)
        process = subprocess.Popen(
            [*(command or [sys.executable]), str(path), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            **options,
        )
        self.started.append(process)
        return process

    def run(self, source: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
        process = self.start(source, *arguments, **options)
        out, err = process.communicate(timeout=300)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Script]:
    folder = tmp_path / "script_folder"
    folder.mkdir()
    made = Script(folder)
    yield made
    for process in made.started:
        if process.poll() is None:
            process.kill()
            process.wait()
