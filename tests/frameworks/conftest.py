"""Tests of the frameworks' adapters, in an environment of their own, which `make frameworks` installs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

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
