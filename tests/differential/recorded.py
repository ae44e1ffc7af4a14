"""Plans whose rows and order were recorded before the data plane was rebuilt on Arrow.

A checkpoint's position is only valid while an epoch keeps its order, so these digests never change. To add plans:
`PYTHONPATH=tests python -m differential.recorded` records those that recorded.json does not have.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from differential import files, run_python
from differential.run_cpp import PROGRAM, Program

FILE = Path(__file__).with_name("recorded.json")
ROWS = 601


def _table(rows: int) -> dict[str, Any]:
    columns = [["id", "int64"], ["x", "float64"], ["n", "int64"], ["name", "string"], ["flag", "bool"]]
    made = []
    for i in range(rows):
        n = None if i % 5 == 0 else i * 7919 % 11 - 5
        name = None if i % 6 == 0 else f"N{i * 31 % 4}é"
        made.append([i, i * 37 % 101 / 4, n, name, None if i % 9 == 0 else i % 2 == 0])
    return {"columns": columns, "rows": made}


MEMORY = {"from": "memory", "table": 0, "chunks": 1}
CHUNKS = {"from": "memory", "table": 0, "chunks": 7}
FILES = {"from": "parquet", "table": 0, "files": 3, "group": 50}
MANY = {"from": "parquet", "table": 0, "files": 9, "group": 11}
SMALL = {"from": "parquet", "table": 1, "files": 2, "group": 5}

SHUFFLE = {"op": "shuffle", "seed": 7}
WINDOWS = {"op": "shuffle", "seed": 3, "window": 64}
BLOCKS = {"op": "block_order", "seed": 5}
FILTER = {"op": "filter", "expression": ["and", [">", ["col", "id"], ["lit", 20]], ["<", ["col", "x"], ["lit", 20.0]]]}
DOUBLE = {"op": "with_column", "name": "y", "expression": ["*", ["col", "id"], ["lit", 2]]}
EACH = {"op": "map", "function": "add_one", "column": "id"}
TWICE = {"op": "flat_map", "function": "twice", "column": "id"}
SMALLER = {"op": "select", "columns": ["id", "name"]}
GROUPS = {"op": "groupby", "keys": ["n"], "aggregates": [["count", None], ["sum", "id"], ["max", "x"]]}


def _workers(workers: int, size: int = 64, epochs: int = 2) -> dict[str, Any]:
    return {"kind": "batches", "workers": workers, "size": size, "epochs": epochs}


def _split(part: int) -> dict[str, Any]:
    return {"op": "split", "parts": 4, "part": part}


def _other(op: str, source: dict[str, Any], *steps: dict[str, Any], **options: Any) -> dict[str, Any]:
    return {"op": op, "others": [{"source": source, "steps": list(steps)}], **options}


JOIN = _other("join", SMALL, SMALLER, how="left", on=["id"], right_on=["id"], suffix="_right")
ZIP = _other("zip", MEMORY, SMALLER)
UNION = _other("union", FILES)
IS_EMPTY = {"op": "filter_rows", "function": "is_missing", "column": "name"}
EMPTY = {"op": "limit", "rows": 0}

_CASES: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "memory": (MEMORY, []),
    "chunks": (CHUNKS, []),
    "files": (FILES, []),
    "many_row_groups": (MANY, [FILTER, SMALLER]),
    "shuffle_memory": (MEMORY, [SHUFFLE]),
    "shuffle_chunks": (CHUNKS, [SHUFFLE]),
    "shuffle_files": (FILES, [SHUFFLE]),
    "shuffle_many": (MANY, [SHUFFLE]),
    "windows": (FILES, [WINDOWS]),
    "windows_many": (MANY, [WINDOWS, EACH]),
    "blocks": (FILES, [BLOCKS]),
    "blocks_many": (MANY, [DOUBLE, BLOCKS]),
    "filter_shuffle": (FILES, [FILTER, SHUFFLE]),
    "shuffle_limit": (FILES, [SHUFFLE, {"op": "limit", "rows": 33}]),
    "shuffle_sort": (FILES, [SHUFFLE, {"op": "sort", "keys": ["n"], "descending": False}]),
    "split_0": (FILES, [_split(0)]),
    "split_3_shuffle": (MANY, [_split(3), SHUFFLE]),
    "shuffle_split": (FILES, [SHUFFLE, _split(1)]),
    "split_at": (FILES, [{"op": "split_at", "indices": [17, 300], "part": 1}]),
    "train": (MANY, [{"op": "train_test", "test": 0.25, "part": 0}, SHUFFLE]),
    "test": (MANY, [{"op": "train_test", "test": 0.25, "part": 1}]),
    "repartition_shuffle": (FILES, [{"op": "repartition", "blocks": 13}, WINDOWS]),
    "repartition_blocks": (FILES, [{"op": "repartition", "blocks": 13}, BLOCKS]),
    "flat_map_shuffle": (FILES, [TWICE, SHUFFLE]),
    "sort": (FILES, [{"op": "sort", "keys": ["name", "x"], "descending": True}]),
    "groups": (FILES, [GROUPS]),
    "groups_shuffle": (FILES, [GROUPS, SHUFFLE]),
    "join": (FILES, [JOIN]),
    "join_shuffle": (FILES, [JOIN, SHUFFLE]),
    "zip_shuffle": (FILES, [ZIP, SHUFFLE]),
    "shuffle_zip": (FILES, [SHUFFLE, _other("zip", FILES, SMALLER, SHUFFLE)]),
    "union_shuffle": (MEMORY, [UNION, SHUFFLE]),
    "materialized_shuffle": (FILES, [SHUFFLE, {"op": "materialize"}]),
    "rows_without_name": (MANY, [IS_EMPTY, SHUFFLE]),
    "empty": (FILES, [EMPTY]),
}

_RESULTS: dict[str, dict[str, Any]] = {"rows": {"kind": "rows"}, "workers": _workers(2), "three": _workers(3, 50)}


def plans() -> dict[str, dict[str, Any]]:
    """By name. Shuffles and splits are also read by two workers; some by three, which take other batches."""
    made = {}
    for name, (source, steps) in _CASES.items():
        asked = ["rows"]
        if name in ("files", "chunks") or any(word in name for word in ("shuffle", "windows", "blocks", "train")):
            asked.append("workers" if len(name) % 2 else "three")
        for result in asked:
            plan = {"tables": [_table(ROWS), _table(23)], "dataset": {"source": source, "steps": steps}}
            made[f"{name}/{result}"] = plan | {"result": _RESULTS[result]}
    return made


def digest(outcome: dict[str, Any]) -> dict[str, Any]:
    """The number of rows, and a hash of their values in order, of the names of the columns and of the batches."""
    table = outcome["table"]
    names = [name for name, _ in table["columns"]]
    text = json.dumps([names, table["rows"], outcome.get("sizes")])
    return {"rows": len(table["rows"]), "sha256": hashlib.sha256(text.encode()).hexdigest()[:16]}


def record() -> None:
    found = json.loads(FILE.read_text()) if FILE.exists() else {}
    with tempfile.TemporaryDirectory() as folder, Program() as program:
        languages: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {"python": run_python.run}
        if PROGRAM.exists():
            languages["cpp"] = program.run
        for index, (name, plan) in enumerate(plans().items()):
            if set(languages) <= set(found.get(name, {})):
                continue
            placed = files.write(plan, Path(folder) / str(index))
            outcomes = {language: run(placed) for language, run in languages.items()}
            print(name, {language: outcome.get("error") for language, outcome in outcomes.items()}, flush=True)
            new = {language: digest(outcome) for language, outcome in outcomes.items() if "table" in outcome}
            found[name] = new | found.get(name, {})
    lines = [f"  {json.dumps(name)}: {json.dumps(digests)}" for name, digests in found.items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    record()
