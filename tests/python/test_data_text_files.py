from __future__ import annotations

import bz2
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pandas = pytest.importorskip("pandas")

import trireme.data  # noqa: E402
from trireme.data import DataError, _json_files, _text_files  # noqa: E402


@pytest.fixture
def frame() -> Any:
    rows = 3000
    return pandas.DataFrame(
        {
            "n": range(rows),
            "x": [None if row % 5 == 0 else row / 4 for row in range(rows)],
            "s": [f'a "quoted", text {row}' for row in range(rows)],
            "b": [row % 2 == 0 for row in range(rows)],
        }
    )


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes every file have several blocks."""
    monkeypatch.setattr(_text_files, "BLOCK", 10_000)
    monkeypatch.setattr(_json_files, "BLOCK", 10_000)


def write_packed(path: Path, content: bytes) -> None:
    with pa.CompressedOutputStream(str(path), pa.Codec.detect(str(path)).name) as stream:
        stream.write(content)


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2", ".zst", ".lz4"])
def test_csv_and_json_as_pandas_reads_them(frame: Any, tmp_path: Path, suffix: str) -> None:
    for part in range(2):
        half = frame.iloc[part * 1500 : part * 1500 + 1500]
        csv, lines = half.to_csv(index=False).encode(), half.to_json(orient="records", lines=True).encode()
        for name, content in ((f"{part}.csv", csv), (f"{part}.jsonl", lines)):
            path = tmp_path / f"{name}{suffix}"
            write_packed(path, content) if suffix else path.write_bytes(content)
    for dataset in (
        trireme.data.read_csv(tmp_path, file_extensions=["csv"]),
        trireme.data.read_json(tmp_path),
    ):
        assert dataset.num_blocks() == 2
        assert dataset.count() == 3000
        pandas.testing.assert_frame_equal(dataset.to_pandas(), frame, check_dtype=False)
        assert dataset.select_columns(["s", "n"]).to_pandas().equals(frame[["s", "n"]].astype({"s": "str"}))
        fragment = dataset._plan.source.fragments()[1]
        reader, first = fragment.open(columns=["n"], row=700)
        got = reader.read_all().column("n").to_pylist()
        assert got[700 - first :] == list(range(2200, 3000))


def test_csv_options(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1;2020-01-01\n2;\n")
    dataset = trireme.data.read_csv(
        tmp_path / "a.csv",
        read_options=pa.csv.ReadOptions(column_names=["n", "when"]),
        parse_options=pa.csv.ParseOptions(delimiter=";"),
        convert_options=pa.csv.ConvertOptions(column_types={"n": pa.float32()}),
    )
    assert dataset.schema().field("n").type == pa.float32()
    assert dataset.to_arrow().column("n").to_pylist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("second", "message"),
    [
        (
            "n,s\nx,y\n",
            r"b.csv: column 'n' is int64 in the beginning of the dataset: .*invalid value 'x'.*column_types",
        ),
        ("n\n1\n", "b.csv: column 's' is missing, but the first file has it"),
        ("n,s,z\n1,x,2\n", "b.csv: column 'z' is not in the first file"),
        ("n,s\n1\n", r"b.csv: .*Expected 2 columns, got 1"),
    ],
)
def test_csv_files_that_disagree(tmp_path: Path, second: str, message: str) -> None:
    (tmp_path / "a.csv").write_text("n,s\n1,x\n")
    (tmp_path / "b.csv").write_text(second)
    with pytest.raises(DataError, match=message):
        trireme.data.read_csv(tmp_path).to_arrow()


def test_csv_columns_in_another_order(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,s,none\n1,x,\n")
    (tmp_path / "b.csv").write_text("none,s,n\ntext,y,2\n")
    assert trireme.data.read_csv(tmp_path).to_arrow().to_pydict() == {
        "n": [1, 2],
        "s": ["x", "y"],
        "none": [None, "text"],
    }


def test_json_of_one_value(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps([{"n": 1, "l": [1]}, {"n": 2}], indent=2))
    (tmp_path / "b.json").write_text(json.dumps({"n": 3, "l": []}, indent=2))
    (tmp_path / "c.json").write_text('{"n": 4}\n{"n": 5, "l": [2]}')
    (tmp_path / "d.json").write_text("")
    table = trireme.data.read_json(tmp_path).to_arrow()
    assert table.to_pydict() == {"n": [1, 2, 3, 4, 5], "l": [[1], None, [], None, [2]]}


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ('{"n": "x"}\n', r"b.json: .*Column\(/n\) changed from number to string.*explicit_schema"),
        ('{"n": 1, "z": 1}\n', r"b.json: .*unexpected field: the beginning of the dataset has only n.*explicit_schema"),
        ('[{"n": 1, "z": 1}]', "b.json: field 'z' is only in this file"),
        ('[{"n": "x"}]', "b.json: column 'n' is string in row 0, and int64 in the others"),
        ("[1, 2]", "b.json: element 0 of the array is int, expected an object"),
        ('{"n": 1}\n{"n": \n', "b.json: "),
        ('[{"n": 1}', "b.json: "),
    ],
)
def test_json_that_disagrees(tmp_path: Path, second: str, message: str) -> None:
    (tmp_path / "a.json").write_text('{"n": 1}\n')
    (tmp_path / "b.json").write_text(second)
    with pytest.raises(DataError, match=message):
        trireme.data.read_json(tmp_path).to_arrow()


def test_rows_that_are_longer_than_a_block(tmp_path: Path) -> None:
    texts = ["x" * (200_000 if number % 400 == 399 else 20) for number in range(1000)]
    frame = pandas.DataFrame({"n": range(1000), "s": texts})
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    for dataset in (trireme.data.read_csv(tmp_path / "a.csv"), trireme.data.read_json(tmp_path)):
        assert dataset.to_arrow().to_pydict() == {"n": list(range(1000)), "s": texts}
        reader, first = dataset._plan.source.fragments()[0].open(columns=["n"], row=500)
        assert reader.read_all().column("n").to_pylist()[500 - first :] == list(range(500, 1000))


def test_json_with_a_given_schema(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"n": 1}\n{"n": 2.5, "extra": 1}\n')
    schema = pa.schema([("n", pa.float64()), ("late", pa.string())])
    dataset = trireme.data.read_json(tmp_path, parse_options=pa.json.ParseOptions(explicit_schema=schema))
    assert dataset.to_arrow().to_pydict() == {"n": [1.0, 2.5], "late": [None, None]}


def test_bad_text_files_are_skipped(tmp_path: Path) -> None:
    for name, content in (("a", '{"n": 1}\n'), ("b", '{"n": '), ("c", '{"n": 3}\n')):
        (tmp_path / f"{name}.json").write_text(content)
    with pytest.warns(UserWarning, match=r"1 of 3 files cannot be read and are skipped: .*b.json"):
        assert trireme.data.read_json(tmp_path, on_bad_file="skip").to_arrow().to_pydict() == {"n": [1, 3]}


@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
def test_text_as_python_reads_it(tmp_path: Path, end: str) -> None:
    lines = [f"zeile {number} äöü" + "x" * (number % 50) for number in range(2000)]
    lines[100:102] = ["", "y" * 50_000]  # longer than a block
    lines[300] = "quoted, \"text\" with 'all' \x01 kinds\tof \\ signs"
    content = "\n".join(lines) + end
    (tmp_path / "a.txt").write_text(content, encoding="utf-8")
    read = trireme.data.read_text
    assert read(tmp_path / "a.txt").to_arrow().column("text").to_pylist() == [line for line in lines if line]
    kept = read(tmp_path / "a.txt", drop_empty_lines=False).to_arrow().column("text").to_pylist()
    assert kept == content.splitlines()


def test_text_with_other_ends_and_encodings(tmp_path: Path) -> None:
    def read(name: str, content: bytes, **options: Any) -> list[str]:
        (tmp_path / name).write_bytes(content)
        return list(trireme.data.read_text(tmp_path / name, **options).to_arrow().column("text").to_pylist())

    assert read("dos.txt", b"a\r\n\r\nb\r\n") == ["a", "b"]
    assert read("mark.txt", b"\xef\xbb\xbfa\nb") == ["a", "b"]
    assert read("latin.txt", "ä\nö".encode("latin-1"), encoding="latin-1") == ["ä", "ö"]
    assert read("wide.txt", "ä\nö\n".encode("utf-16"), encoding="utf-16") == ["ä", "ö"]
    assert read("empty.txt", b"") == []
    assert read("a.txt.gz", gzip.compress(b"a\nb\n")) == ["a", "b"]
    assert read("a.txt.bz2", bz2.compress(b"a\nb\n")) == ["a", "b"]
    assert read("packed", gzip.compress(b"a\nb\n"), arrow_open_stream_args={"compression": "gzip"}) == ["a", "b"]
    with pytest.raises(trireme.ConfigError, match="compression = 'rar'"):
        read("packed", b"", arrow_open_stream_args={"compression": "rar"})
    with pytest.raises(DataError, match=r"bad.txt is not utf-8"):
        read("bad.txt", "ä\n".encode("latin-1"))
    with pytest.raises(DataError, match=r"cut.txt.gz: "):
        read("cut.txt.gz", gzip.compress(b"a\n" * 10_000)[:-20])
