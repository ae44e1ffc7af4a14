"""The scripts in tests/compat/scripts that need a framework, compared with what they recorded under Ray 2.60."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "compat"))
import compat_runs

SCRIPTS = ["lightgbm_loop", "lightning_fit", "transformers_fit", "v1_xgboost", "xgboost_loop"]


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return compat_runs.run(SCRIPTS, tmp_path_factory.mktemp("compat"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_records_the_same_as_under_ray(name: str, records: dict[str, Any]) -> None:
    assert records[name] == compat_runs.recorded(name)
