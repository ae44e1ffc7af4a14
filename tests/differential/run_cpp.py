"""Evaluates plans with the C++ API: a process of tests/cpp/data_plan_program.cpp evaluates one after another."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa

from differential.expressions import text
from differential.tables import from_arrow

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = Path(os.environ.get("TRIREME_BUILD_DIR", ROOT / "build/release")) / "tests/data_plan_program"


class Program:
    """Starts the process when it is first needed, and again after it has died."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed by __exit__)

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            self._process.wait(60)
        self._errors.close()

    def run(self, plan: dict[str, Any]) -> dict[str, Any]:
        """The outcome of a plan that files.write() has placed: a table, a value, or an error."""
        self.start(plan)
        return self.outcome(plan)

    def start(self, plan: dict[str, Any]) -> None:
        """outcome() must follow. The process evaluates the plan in the meantime."""
        if self._process is None:
            self._process = subprocess.Popen(
                [PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True
            )
        assert self._process.stdin is not None
        request = {"dataset": _shown(plan["dataset"]), "result": plan["result"], "folder": plan["folder"]}
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def outcome(self, plan: dict[str, Any]) -> dict[str, Any]:
        process = self._process
        assert process is not None and process.stdout is not None
        line = process.stdout.readline()
        if not line:
            self._process = None
            self._errors.seek(0)
            return {"died": f"exit code {process.wait()}: {self._errors.read()[-2000:]}"}
        return _outcome(json.loads(line), Path(plan["folder"]) / "result")


def _shown(node: dict[str, Any]) -> dict[str, Any]:
    """The program parses the text of expressions."""
    steps = []
    for step in node["steps"]:
        if "expression" in step:
            step = step | {"expression": text(step["expression"])}
        if "others" in step:
            step = step | {"others": [_shown(other) for other in step["others"]]}
        steps.append(step)
    return {"source": node["source"], "steps": steps}


def _outcome(line: dict[str, Any], result: Path) -> dict[str, Any]:
    if "error" in line:
        return line
    if "value" in line:
        return {"value": _decoded(line["value"])}
    with pa.OSFile(str(result), "rb") as file:
        return line | {"table": from_arrow(pa.ipc.open_stream(file).read_all())}


def _decoded(value: Any) -> Any:
    if isinstance(value, dict) and "$float" in value:
        return float(value["$float"])
    return [_decoded(each) for each in value] if isinstance(value, list) else value
