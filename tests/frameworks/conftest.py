"""Tests of the frameworks' adapters, in an environment of their own, which `make frameworks` installs."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

import trireme
from trireme._preload import needs_of

# The warm process imports them once, instead of every worker. These scripts are not the one of the process.
PRELOAD = [
    "pytest",
    *needs_of("lightning"),
    "pytorch_lightning",
    *needs_of("transformers"),
    "transformers.GPT2LMHeadModel",
    "trireme.xgboost._loop",
    "trireme.lightgbm._loop",
    *needs_of("accelerate"),
    *needs_of("deepspeed"),
    *needs_of("flax"),
    *needs_of("optax"),
    *needs_of("orbax"),
    *needs_of("tensorflow"),
    *needs_of("keras"),
    *needs_of("horovod"),
]


@pytest.fixture(autouse=True, scope="session")
def offline(tmp_path_factory: pytest.TempPathFactory) -> None:
    os.environ["TRIREME_STATE_DIR"] = str(tmp_path_factory.mktemp("state"))
    os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture(autouse=True)
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TRIREME_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("TRIREME_RUN_PRELOAD", ",".join(PRELOAD))
    yield tmp_path / "results"


@pytest.fixture
def declared() -> Iterator[Callable[..., None]]:
    """trireme.init() for one test."""
    trireme.shutdown()
    yield trireme.init
    trireme.shutdown()


def pytest_sessionstart(session: pytest.Session) -> None:
    if os.environ.get("CI") == "true" and find_spec("horovod") is None:
        pytest.exit("the tests of Horovod need its wheel, which `make horovod` builds", returncode=1)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if find_spec("horovod") is None:
        terminalreporter.write_sep("=", "NOT TESTED: Horovod", yellow=True, bold=True)
        terminalreporter.write_line("trireme.horovod was not tested: build its wheel once with `make horovod`")
