from __future__ import annotations

from typing import Any

import pytest

from runs import ranks_that_printed

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")

pytestmark = pytest.mark.notebook


def run_cells(*sources: str, allow_errors: bool = False) -> list[Any]:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3", allow_errors=allow_errors).execute()
    return list(notebook.cells)


def text_of(cell: Any) -> str:
    parts = []
    for output in cell.outputs:
        parts.append(output.get("text") or output.get("data", {}).get("text/plain") or "\n".join(output["traceback"]))
    return "\n".join(parts)


def test_functions_of_cells_train_on_workers_and_the_output_is_plain() -> None:
    cells = run_cells(
        "import trireme\nfrom trireme import DataParallelTrainer, ScalingConfig\nfactor = 3",
        "def helper():\n    return factor * trireme.get_context().get_world_size()",
        "def train():\n    print('from a worker')\n    trireme.report({'a': 1})\n    return helper()",
        "result = DataParallelTrainer(train, scaling_config=ScalingConfig(num_workers=2)).fit()",
        "result.return_value, result.metrics",
        "factor = 5\nDataParallelTrainer(train).fit().return_value",
    )
    assert ranks_that_printed("from a worker", text_of(cells[3])) == [0, 1]
    assert "\x1b" not in text_of(cells[3])
    assert text_of(cells[4]) == "(6, {'a': 1})"
    assert text_of(cells[5]).endswith("5")


def test_inside_a_running_event_loop() -> None:
    cells = run_cells(
        "import trireme\nasync def go():\n    return trireme.DataParallelTrainer(lambda: 8).fit().return_value",
        "await go()",
    )
    assert text_of(cells[1]).endswith("8")


def test_failure_shows_the_workers_error() -> None:
    cells = run_cells(
        "import trireme\ndef train():\n    raise ValueError('in a cell')",
        "trireme.DataParallelTrainer(train).fit()",
        allow_errors=True,
    )
    assert "ValueError: in a cell" in text_of(cells[1])
    assert "    raise ValueError('in a cell')" in text_of(cells[1]), "the worker has the cell's source lines"
