"""Operations on datasets in C++ programs return the same as trireme.data for the same files."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from cpp_programs import BUILD, EXAMPLES, checked, run

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
np = pytest.importorskip("numpy")
data = pytest.importorskip("trireme.data")

PROGRAM = BUILD / "tests/data_ops_program"
pytestmark = pytest.mark.skipif(not PROGRAM.exists(), reason=f"{PROGRAM} is not built: run `make build` first")
needs_arrow = pytest.mark.skipif(not (EXAMPLES / "example_data_parquet").exists(), reason="trireme::data is not built")


def plain(value: Any) -> Any:
    """Parses the output of show()."""
    if isinstance(value, dict) and set(value) == {"$float"}:
        return float(value["$float"])
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    return [plain(each) for each in value] if isinstance(value, list) else value


def lines(*arguments: Any) -> list[Any]:
    return [plain(json.loads(line)) for line in checked(PROGRAM, *arguments).splitlines()]


def table() -> Any:
    return pa.table(
        {
            "id": range(200),
            "x": [i / 3 if i % 7 else None for i in range(200)],
            "n": [i % 11 - 5 if i % 5 else None for i in range(200)],
            "name": [f"N{i % 4}é" if i % 6 else None for i in range(200)],
            "flag": [None if i % 9 == 0 else i % 2 == 0 for i in range(200)],
            "small": pa.array([i % 100 for i in range(200)], pa.int8()),
            "byte": pa.array([i for i in range(200)], pa.uint8()),
            "single": pa.array([i / 7 for i in range(200)], pa.float32()),
            "text": pa.array(["a", "b"] * 100).dictionary_encode(),
        }
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file: Path = tmp_path_factory.mktemp("ops") / "rows.parquet"
    pq.write_table(table(), file, row_group_size=70)
    return file


@needs_arrow
def test_unit_tests_of_the_library_pass() -> None:
    assert "| 0 failed |" in checked(BUILD / "tests/dataset_tests")


FILTERS = [
    "x > 3 and name == 'N1é'",
    "x > 3 or name == 'N1é'",
    "not (x > 3)",
    "n in [1, 2, None]",
    "n not in [1, 2]",
    "n is None or flag",
    "10 <= id < 20 or id == 150",
    "flag == True",
    "~flag & (n < 0)",
    "id % 7 == 3 and id // 10 == 4",
    "id / 4 == 2.5",
    "single > 0.1",
    "single in [0.0, 1.0]",
    "single * 0.5 > 2",
    "byte - 100 > small",
    "abs(n) == 5",
    "-n == 3",
    "n ** 2 == 16",
    "length(name) == 3",
    "lower(name) == 'n2é'",
    "upper(name) == 'N2É'",
    "is_nan(x)",
    "is_valid(name) and text != 'a'",
    "name < 'N2'",
    "col('x') >= 60.5 and id != 199",
    "x == None",
    "True",
    "small + 1 > 100",
]


@needs_arrow
def test_filters_keep_the_same_rows(path: Path) -> None:
    kept = [line["ids"] for line in lines("filter", path, *FILTERS)]
    for text, ids in zip(FILTERS, kept, strict=True):
        expected = [row["id"] for row in data.read_parquet(str(path)).filter(expr=text).take_all()]
        assert ids == expected, text


# Statistics of row groups ignore NaN.
FLOAT_FILTERS: dict[str, Any] = {
    "not (f < 0)": lambda f: ~(f < 0),
    "f != 3.0": lambda f: f != 3.0,
    "not (f >= -1)": lambda f: ~(f >= -1),
    "not f >= -1": lambda f: ~(f >= -1),
    "not (-1 <= f)": lambda f: ~(f >= -1),
    "~(f >= -1)": lambda f: ~(f >= -1),
    "f != f": lambda f: f != f,
    "not (f == f)": lambda f: ~(f == f),
    "is_nan(f)": np.isnan,
    "f not in [3.0]": lambda f: ~np.isin(f, [3.0]),
    "f in [0.0]": lambda f: np.isin(f, [0.0]),
    "f in [-0.0]": lambda f: np.isin(f, [0.0]),
    "f == 0": lambda f: f == 0,
    "f in [0, 3]": lambda f: np.isin(f, [0, 3]),
    "f > 0 or not (f < 3)": lambda f: (f > 0) | ~(f < 3),
    "not (f < 0 or id > 4)": lambda f: ~((f < 0) | (np.arange(6) > 4)),
    "not (f > -1 and id < 5)": lambda f: ~((f > -1) & (np.arange(6) < 5)),
}


@needs_arrow
@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()], ids=str)
@pytest.mark.parametrize("group", [1, 2, 6])
def test_filters_of_floats_give_the_rows_of_numpy(tmp_path: Path, group: int, kind: pa.DataType) -> None:
    values = np.array([-1, 0.0, -0.0, 2, 3, np.nan])
    pq.write_table(
        pa.table({"id": range(6), "f": pa.array(values).cast(kind)}), tmp_path / "f.parquet", row_group_size=group
    )
    for mode in ("filter", "filter_in_memory"):
        for (text, mask), line in zip(
            FLOAT_FILTERS.items(), lines(mode, tmp_path / "f.parquet", *FLOAT_FILTERS), strict=True
        ):
            assert line["ids"] == np.flatnonzero(mask(values)).tolist(), (mode, text)


@needs_arrow
def test_row_groups_that_cannot_match_are_not_read(path: Path, tmp_path: Path) -> None:
    """There are three, with ids that start at 0, 70 and 140."""
    expected = {
        "id >= 140": 1,
        "id > 69 and n < 3": 2,
        "60 < id <= 69 and abs(n) == 5": 1,
        "70 == id": 1,
        "id in [3, 199]": 2,
        "id > 1000": 1,  # none matches, but one is kept for its columns
        "text == 'c'": 3,  # a dictionary column: statistics are not used
        "single < 1": 1,
        "single < 0.1": 3,  # not representable in float32
        "id > 2.5 and small != 0": 3,
        "id < 5 or id > 190": 3,
    }
    for text, line in zip(expected, lines("filter", path, *expected), strict=True):
        assert line["fragments"] == expected[text], text
        assert line["ids"] == [row["id"] for row in data.read_parquet(str(path)).filter(expr=text).take_all()], text

    for year in (2023, 2024):
        (tmp_path / f"year={year}").mkdir()
        pq.write_table(pa.table({"id": [year]}), tmp_path / f"year={year}/rows.parquet")
    assert lines("filter", tmp_path, "year == 2024") == [{"ids": [2024], "fragments": 1}]


@needs_arrow
def test_columns_of_expressions_are_the_same(path: Path, tmp_path: Path) -> None:
    texts = ["x * 2 + 1", "small + 1", "byte - 3", "single * 0.5", "single / 3", "id % 7", "id // 7", "n ** 2"]
    texts += ["length(name)", "upper(name)", "x > 3", "abs(n)", "-n", "id * 0.1", "text", "is_null(x)"]
    checked(PROGRAM, "with_columns", path, tmp_path / "made", *texts)
    made = pq.read_table(tmp_path / "made")
    for index, text in enumerate(texts):
        expected = data.read_parquet(str(path)).with_column("made", text).to_arrow().column("made")
        column = made.column(f"made{index}")
        if pa.types.is_dictionary(expected.type):
            expected = expected.cast(pa.string())
        assert column.to_pylist() == expected.to_pylist(), text
        if not pa.types.is_string(expected.type):
            assert column.type == expected.type, text


@needs_arrow
def test_bad_expressions_are_refused(path: Path) -> None:
    for text, message in {
        "x >": "'x >' is not an expression: unexpected end, at position 3",
        "idd > 1": "no column named 'idd'; did you mean 'id'?",
        "name > 1": "Function 'greater' has no kernel matching input types (string, int",
        "small * 2 > 1": "overflow",
    }.items():
        done = run(PROGRAM, "filter", path, text)
        assert done.returncode == 1
        assert message in done.stdout
        with pytest.raises((ValueError, data.DataError)):
            data.read_parquet(str(path)).filter(expr=text).take_all()


@needs_arrow
def test_aggregates_are_the_same(path: Path) -> None:
    rows = data.read_parquet(str(path))
    seen = 0
    for line in lines("aggregates", path):
        column, function = line["column"], line["function"]
        seen += 1
        if "error" in line:
            with pytest.raises(ValueError) as refused:
                getattr(rows, function)(column)
            if column != "text":  # a dictionary there, text here
                assert str(refused.value).startswith(line["error"])
            continue
        expected = getattr(rows, function)(column) if column != "text" else plain_text(function)
        if function in ("sum", "mean", "std") and expected is not None:
            assert line["value"] == pytest.approx(expected, rel=1e-12), (function, column)
        else:
            assert line["value"] == expected or (math.isnan(expected) and math.isnan(line["value"])), (function, column)
    assert seen == 6 * len(table().schema)


def plain_text(function: str) -> Any:
    return {"min": "a", "max": "b", "unique": ["a", "b"]}[function]


@needs_arrow
def test_joins_are_the_same(tmp_path: Path) -> None:
    left = pa.table({"x": [10, 11, 12, 13, 14], "k": [1, 2, None, 2, 5], "both": list("abcde")})
    right = pa.table({"key": [2, 1, 7, None, 2], "y": list("pqrst"), "both": [1.0, 2.0, 3.0, None, 5.0]})
    pq.write_table(left, tmp_path / "left.parquet")
    pq.write_table(right, tmp_path / "right.parquet")
    ways = ["inner", "left", "left_outer", "right", "right_outer", "full", "full_outer", "outer", "semi", "left_semi"]
    ways += ["right_semi", "anti", "left_anti", "right_anti"]
    done = run(PROGRAM, "join", tmp_path, *ways)
    assert done.returncode == 1
    assert "join: column 'both' is in both datasets; set left_suffix or right_suffix" in done.stdout
    for how in ways:
        joined = data.from_arrow(left).join(data.from_arrow(right), how, on="k", right_on="key", right_suffix="_r")
        assert pq.read_table(tmp_path / how).to_pydict() == joined.to_arrow().to_pydict(), how
    refusals = {"sideways": "join: how = 'sideways': expected one of inner, left", "": "join: how = ''"}
    for how, message in refusals.items():
        refused = run(PROGRAM, "join", tmp_path, how)
        assert refused.returncode == 1
        assert message in refused.stdout


@needs_arrow
def test_groups_are_the_same(path: Path, tmp_path: Path) -> None:
    from trireme.data.aggregate import Max, Std, Sum

    checked(PROGRAM, "group", path, tmp_path / "groups")
    groups = data.read_parquet(str(path)).groupby(["n", "flag"])
    expected = groups.aggregate(Sum("x"), Std("x"), Max("id", alias_name="last")).to_arrow().to_pylist()
    found = pq.read_table(tmp_path / "groups").to_pylist()
    assert [list(row) for row in found] == [list(row) for row in expected]
    for mine, its in zip(found, expected, strict=True):
        assert mine == pytest.approx(its, nan_ok=True), mine


@needs_arrow
def test_files_are_those_that_python_writes(path: Path, tmp_path: Path) -> None:
    rows = data.read_parquet(str(path))
    for format in ("parquet", "csv", "json"):
        checked(PROGRAM, "write", format, path, tmp_path / format, "append")
        getattr(rows, f"write_{format}")(tmp_path / f"py_{format}", min_rows_per_file=64)
        mine, its = (sorted((tmp_path / name).iterdir()) for name in (format, f"py_{format}"))
        assert [name_of(file) for file in mine] == [f"-{index:06}.{format}" for index in range(4)]
        assert {name_of(file) for file in its} <= {name_of(file) for file in mine}
        assert len({file.name[:8] for file in mine}) == 1
        if format == "json":
            assert "".join(file.read_text() for file in mine) == "".join(file.read_text() for file in its)
        else:
            read = getattr(data, f"read_{format}")
            assert read(str(tmp_path / format)).take_all() == read(str(tmp_path / f"py_{format}")).take_all()


def name_of(file: Path) -> str:
    assert all(sign in "0123456789abcdef" for sign in file.name[:8]), file
    return file.name[8:]


@needs_arrow
def test_values_of_every_kind_as_json(tmp_path: Path) -> None:
    import datetime

    moment = datetime.datetime(2024, 2, 3, 4, 5, 6, 700)
    nested = pa.table(
        {
            "t": pa.array([moment, moment.replace(microsecond=0), None], pa.timestamp("us")),
            "d": pa.array([moment.date(), None, moment.date()]),
            "f": [1.0, math.nan, 1e-7],
            "l": [[1, 2], [], None],
            "s": [{"a": 'q"\n', "b": None}, None, {"a": "é\u0001", "b": 1}],
            "v": pa.array([[1.5, 2.0], [3.0, 4.0], [5.0, 6.0]], pa.list_(pa.float32(), 2)),
        }
    )
    pq.write_table(nested, tmp_path / "n.parquet")
    checked(PROGRAM, "write", "json", tmp_path / "n.parquet", tmp_path / "json", "append")
    data.read_parquet(str(tmp_path / "n.parquet")).write_json(tmp_path / "py")
    texts = [next((tmp_path / name).iterdir()).read_text() for name in ("json", "py")]
    assert texts[0] == texts[1]
    pq.write_table(pa.table({"b": [b"x"]}), tmp_path / "b.parquet")
    done = run(PROGRAM, "write", "json", tmp_path / "b.parquet", tmp_path / "none", "append")
    assert done.returncode == 1
    assert "JSON cannot hold bytes; decode or drop the column, or use write_parquet" in done.stdout
    assert list((tmp_path / "none").iterdir()) == [], "incomplete files are removed"


@needs_arrow
def test_one_column_as_numpy_files(path: Path, tmp_path: Path) -> None:
    pq.write_table(
        table().append_column("v", pa.array([[i, i / 2] for i in range(200)], pa.list_(pa.float32(), 2))),
        tmp_path / "rows.parquet",
        row_group_size=70,
    )
    rows = data.read_parquet(str(tmp_path / "rows.parquet"))
    for column in ("id", "x", "n", "small", "single", "v"):
        checked(PROGRAM, "write", "numpy", tmp_path / "rows.parquet", tmp_path / column, "append", column)
        rows.write_numpy(tmp_path / f"py_{column}", column=column, min_rows_per_file=64)
        mine, its = (
            [np.load(each) for each in sorted((tmp_path / name).iterdir())] for name in (column, f"py_{column}")
        )
        assert [len(each) for each in mine] == [64, 64, 64, 8]
        assert {each.dtype for each in mine} == {each.dtype for each in its}, column
        np.testing.assert_array_equal(np.concatenate(mine), np.concatenate(its))
    for column, message in {
        "name": "write_numpy: column 'name' is ",
        "idd": "write_numpy(column): no column named 'idd'; the columns are id, x",
        "flag": "write_numpy: column 'flag' is bool; .npy files hold numbers of one shape",
    }.items():
        done = run(PROGRAM, "write", "numpy", path, tmp_path / "none", "append", column)
        assert done.returncode == 1
        assert message in done.stdout


@needs_arrow
def test_folders_that_have_files(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    for mode, files in {"error": 4, "append": 8, "overwrite": 4, "ignore": 4}.items():
        checked(PROGRAM, "write", "parquet", path, folder, mode)
        assert len(list(folder.iterdir())) == files, mode
    done = run(PROGRAM, "write", "parquet", path, folder, "error")
    assert done.returncode == 1
    assert "has 4 files; mode 'overwrite' replaces them, 'append' adds to them" in done.stdout
    done = run(PROGRAM, "write", "parquet", path, folder, "sometimes")
    assert done.returncode == 1
    assert "mode = 'sometimes': expected one of 'append', 'overwrite', 'ignore', 'error'" in done.stdout
    # The rows may be read from the files that are replaced.
    checked(PROGRAM, "write", "parquet", folder, folder, "overwrite")
    assert sorted(pq.read_table(folder).column("id").to_pylist()) == list(range(200))


@needs_arrow
def test_datasets_side_by_side(path: Path) -> None:
    rows = data.read_parquet(str(path))
    expected = rows.zip(rows.select_columns(["id"]).repartition(3)).take_all()
    assert lines("zip", path) == [{**row, "single": float(row["single"])} for row in expected]


def test_local_mode_resumes_from_the_position_of_a_checkpoint() -> None:
    (told,) = [json.loads(line) for line in checked(PROGRAM, "local", "x").splitlines() if line.startswith("{")]
    assert len(told["all"]) == 103
    assert told["rest"] == told["all"][40:], "five batches of eight were taken before"
