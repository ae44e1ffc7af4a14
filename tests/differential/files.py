"""Writes the tables of a plan where both languages read them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from differential.tables import to_arrow

Plan = dict[str, Any]


def sources(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The sources of a dataset, and of the datasets that its steps use."""
    yield node["source"]
    for step in node["steps"]:
        for other in step.get("others", []):
            yield from sources(other)


def write(plan: Plan, folder: Path) -> Plan:
    """The same plan with a path in every source: a stream of record batches, or a folder of Parquet files."""
    folder.mkdir(parents=True, exist_ok=True)
    tables = [to_arrow(table) for table in plan["tables"]]
    counter = iter(range(10_000))

    def placed(node: dict[str, Any]) -> dict[str, Any]:
        source = dict(node["source"])
        path = folder / f"source{next(counter)}"
        table = tables[source["table"]]
        if source["from"] == "memory":
            _write_stream(to_arrow(plan["tables"][source["table"]], source.get("chunks", 1)), path)
        else:
            _write_files(table, path, source)
        source["path"] = str(path)
        steps = [
            step | {"others": [placed(other) for other in step["others"]]} if "others" in step else step
            for step in node["steps"]
        ]
        return {"source": source, "steps": steps}

    return plan | {"dataset": placed(plan["dataset"]), "folder": str(folder)}


def _write_stream(table: pa.Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
        stream.write_table(table)


def _write_files(table: pa.Table, path: Path, source: dict[str, Any]) -> None:
    """Files of about equal size; `group`: rows per row group."""
    path.mkdir()
    files = source["files"]
    edges = [table.num_rows * index // files for index in range(files + 1)]
    for index in range(files):
        part = table.slice(edges[index], edges[index + 1] - edges[index])
        pq.write_table(part, path / f"part{index}.parquet", row_group_size=source["group"])
