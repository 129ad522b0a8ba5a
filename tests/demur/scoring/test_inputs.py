"""Files that cannot be scored: what is wrong, where, and what to do."""

from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import parquet

from demur.scoring.errors import ScoringError
from demur.scoring.inputs import part_of
from demur.scoring.job import open_source
from demur.scoring.output import check_format
from demur.service.bundle import InputSpec
from tests.support.bundles import FEATURE_SPEC, IMAGE_SPEC

PLAIN = InputSpec(shape=(2, 2))


def read(path: Path, spec: InputSpec) -> np.ndarray:
    source = open_source(path, spec)
    found = np.concatenate([batch.inputs for batch in source.batches(0, 2)])
    assert len(found) == source.count
    return found


@pytest.mark.parametrize(
    ("first", "spec", "stated", "count"),
    [
        ("w,x,y,z", PLAIN, None, 2),
        ("4,5,6,7", PLAIN, None, 3),
        ("0.0,1.0,2.0,3.0", PLAIN, None, 3),
        ("0,1,2,3", PLAIN, True, 2),
        ("0,1,2,3", PLAIN, False, 3),
        ("7,8,9,10", PLAIN, True, 2),
        ("a,b,c,d,4", FEATURE_SPEC, None, 2),
    ],
)
def test_the_first_line_is_a_header_or_data(
    tmp_path: Path, first: str, spec: InputSpec, stated: bool | None, count: int
) -> None:
    more = ",5" * (first.count(",") - 3)
    (tmp_path / "inputs.csv").write_text(f"{first}\n9,8,7,6{more}\n1,2,3,4{more}\n")
    source = open_source(tmp_path / "inputs.csv", spec, stated)
    assert source.count == count
    found = np.concatenate([batch.inputs.reshape(-1, 4) for batch in source.batches(0, 2)])
    assert found[-2:].tolist() == [[9, 8, 7, 6], [1, 2, 3, 4]]
    assert len(found) == count


@pytest.mark.parametrize(
    ("first", "spec", "stated", "note"),
    [
        ("a,b,c,d", FEATURE_SPEC, None, ""),
        (" d ,c,b,a", FEATURE_SPEC, None, ""),
        ("2021,2022,2023,2024", FEATURE_SPEC, None, "the first line, 2021,2022,2023,2024, was taken for an example"),
        ("2021,2022,2023,2024", PLAIN, None, "was taken for an example; --header or --no-header says what it is"),
        ('"1,5","2,5","3,5","4,5"', PLAIN, None, "the first line, 1,5,2,5,3,5,4,5, was taken for the names of the"),
        ("2021,2022,2023,2024", PLAIN, True, ""),
        ("2021,2022,2023,2024", PLAIN, False, ""),
    ],
)
def test_what_the_first_line_was_taken_for_is_said_where_no_name_decides(
    tmp_path: Path, first: str, spec: InputSpec, stated: bool | None, note: str
) -> None:
    (tmp_path / "inputs.csv").write_text(f"{first}\n9,8,7,6\n")
    found = open_source(tmp_path / "inputs.csv", spec, stated)
    assert note in found.note
    assert bool(note) == bool(found.note)
    assert part_of(found, 1, 1).note == found.note


@pytest.mark.parametrize("first", ["0,1,2,3", "0"])
def test_a_line_of_column_numbers_may_be_either(tmp_path: Path, first: str) -> None:
    (tmp_path / "inputs.csv").write_text(f"{first}\n5,6,7,8\n")
    with pytest.raises(ScoringError, match=f"found the first line {first}, .* expected --header or --no-header"):
        open_source(tmp_path / "inputs.csv", PLAIN)


@pytest.mark.parametrize("stated", [True, False])
def test_only_csv_files_have_a_header(tmp_path: Path, stated: bool) -> None:
    np.save(tmp_path / "inputs.npy", np.zeros((3, 2, 2)))
    option = "--header" if stated else "--no-header"
    with pytest.raises(ScoringError, match=rf"^{option}: found .*inputs\.npy, expected a \.csv file"):
        open_source(tmp_path / "inputs.npy", PLAIN, stated)


@pytest.mark.parametrize(
    ("text", "spec", "message"),
    [
        ("", PLAIN, "found no row"),
        ("a,b,c,d\n", FEATURE_SPEC, "found no row"),
        ("a,b,c\n1,2,3\n", FEATURE_SPEC, "inputs.csv: found no column 'd', expected one of each name"),
        ("a,b,c,d,d\n1,2,3,4,5\n", FEATURE_SPEC, "found several columns 'd', expected one of each name"),
        (
            "A,b,c,D\n1,2,3,4\n",
            FEATURE_SPEC,
            r"found no column 'a' \(did you mean 'A'\?\), 'd' \(did you mean 'D'\?\),",
        ),
        ("a;b;c;d\n1;2;3;4\n", FEATURE_SPEC, "the header is separated by ';', expected commas"),
        ("a\tb\tc\td\n1\t2\t3\t4\n", PLAIN, r"the header is separated by '\\t', expected commas"),
        ("a,b,c,d\n17,1,2,3,4\n", FEATURE_SPEC, r"row 0 \(line 2\): found 5 columns, expected 4 as in the header"),
        ("a,b,c,d,e\n1,2,3,4,5\n\n1,2,3,4\n", FEATURE_SPEC, r"row 1 \(line 4\): found 4 columns, expected 5 as in"),
        ("a,b,c\n1,2,3\n", PLAIN, r"found 3 columns, expected 4 for shape \(2, 2\)"),
        ("1,2,3,4\n5,6,7,8\n9,8,7\n", PLAIN, r"row 2 \(line 3\): found 3 columns, expected 4"),
        ("1,2,3,4\n5,6,7,8\n9,8,x,7\n", PLAIN, r"row 2 \(line 3\), entry \[2\]: found 'x', expected a number"),
        ("1,2,3,x\n5,6,7,8\n", PLAIN, r"row 0 \(line 1\), entry \[3\]: found 'x'"),
        ("d,c,b,a\n1,2,3,4\n1,2,inf,4\n", FEATURE_SPEC, r"row 1 \(line 3\), column 'b': found inf, expected a finite"),
        ("d,c,b,a\n1,2,3,4\n1,,3,4\n", FEATURE_SPEC, r"row 1 \(line 3\), column 'c': found '', expected a number"),
        (
            "1,2\n1.5,2\n",
            InputSpec(shape=(2,), dtype="int64"),
            r"row 1 \(line 2\), entry \[0\]: found '1.5', expected a",
        ),
    ],
)
def test_csv_files_that_are_refused(tmp_path: Path, text: str, spec: InputSpec, message: str) -> None:
    path = tmp_path / "inputs.csv"
    path.write_text(text)
    with pytest.raises(ScoringError, match=message):
        read(path, spec)


def test_a_csv_file_in_another_encoding_is_refused(tmp_path: Path) -> None:
    (tmp_path / "inputs.csv").write_bytes("größe,1,2,3\n".encode("latin-1"))
    with pytest.raises(ScoringError, match=r"found no \.csv file .* expected one in UTF-8"):
        read(tmp_path / "inputs.csv", PLAIN)


def test_truth_values_are_numbers_as_in_data_frames(tmp_path: Path) -> None:
    (tmp_path / "inputs.csv").write_text("a,b,c,d\nTrue,False,1,2\ntrue,false,3,4\n")
    assert read(tmp_path / "inputs.csv", FEATURE_SPEC).tolist() == [[1, 0, 1, 2], [1, 0, 3, 4]]


def test_rows_are_read_in_c_order(tmp_path: Path) -> None:
    (tmp_path / "inputs.csv").write_text("w,x,y,z\n1,2,3,4\n5,6,7,8\n9,10,11,12\n")
    np.testing.assert_array_equal(read(tmp_path / "inputs.csv", PLAIN), np.arange(1, 13).reshape(3, 2, 2))
    parquet.write_table(pa.table({name: [1.0, 2.0, 3.0] for name in "wxyz"}), tmp_path / "inputs.parquet", 2)
    assert read(tmp_path / "inputs.parquet", PLAIN)[:, 1, 1].tolist() == [1, 2, 3]


def test_batches_start_anywhere(tmp_path: Path) -> None:
    inputs = np.arange(40, dtype=np.float32).reshape(10, 4)
    np.save(tmp_path / "inputs.npy", inputs)
    np.savetxt(tmp_path / "inputs.csv", inputs, delimiter=",")
    parquet.write_table(pa.table({name: inputs[:, k] for k, name in enumerate("abcd")}), tmp_path / "inputs.parquet", 3)
    for suffix in ("npy", "csv", "parquet"):
        source = open_source(tmp_path / f"inputs.{suffix}", FEATURE_SPEC)
        for start in (0, 3, 9, 10):
            found = [row for batch in source.batches(start, 4) for row in batch.inputs.tolist()]
            assert found == inputs[start:].tolist()


def test_parquet_files_that_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "inputs.parquet"
    path.write_bytes(b"no table")
    with pytest.raises(ScoringError, match=r"found no \.parquet file"):
        read(path, FEATURE_SPEC)
    parquet.write_table(pa.table({"a": [1.0, None], "b": [1, 2], "c": [1, 2], "d": [1, 2]}), path)
    with pytest.raises(ScoringError, match="row 1, column 'a': found nan, expected a finite number"):
        read(path, FEATURE_SPEC)
    parquet.write_table(pa.table({name: ["x"] for name in "abcd"}), path)
    with pytest.raises(ScoringError, match="column 'a': found string, expected numbers"):
        read(path, FEATURE_SPEC)


def test_arrays_that_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "inputs.npy"
    path.write_bytes(b"no array")
    with pytest.raises(ScoringError, match=r"found no \.npy file"):
        read(path, PLAIN)
    np.save(path, np.zeros((3, 5)))
    with pytest.raises(ScoringError, match=r"found shape \(3, 5\), expected \(n, 2, 2\)"):
        read(path, PLAIN)
    np.save(path, np.zeros((2, 2)))
    assert read(path, PLAIN).shape == (1, 2, 2)


def test_what_is_no_file_of_inputs_is_refused(tmp_path: Path) -> None:
    for path, spec, message in (
        (tmp_path / "none.npy", PLAIN, "no such file or folder"),
        (tmp_path, PLAIN, "the bundle takes arrays, not images"),
        (tmp_path, IMAGE_SPEC, "found no image"),
        (Path(__file__), PLAIN, r"found the suffix '\.py', expected \.npy, \.csv, \.parquet, \.jsonl, or a folder"),
    ):
        with pytest.raises(ScoringError, match=message):
            open_source(path, spec)
    with pytest.raises(ScoringError, match=r"found the suffix '\.xls', expected one of \.jsonl, \.csv, \.parquet"):
        check_format(tmp_path / "rows.xls")


def npy(header: str, data: bytes = b"") -> bytes:
    text = header.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text + data


HOSTILE = {
    "a zip": b"PK\x03\x04" + bytes(100),
    "a pickle": b"\x80\x04N.",
    "nothing": b"",
    "half a header": npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2, 2), }", bytes(32))[:40],
    "2^63 rows": npy(f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({2**63}, 2, 2), }}"),
    "a negative number of rows": npy("{'descr': '<f4', 'fortran_order': False, 'shape': (-1, 2, 2), }", bytes(32)),
    "deep brackets": npy("(" * 5000 + ")" * 4000),
    "a shape of words": npy("{'descr': '<f4', 'fortran_order': False, 'shape': ('a', 2, 2), }", bytes(32)),
    "objects": npy("{'descr': '|O', 'fortran_order': False, 'shape': (2, 2, 2), }", bytes(64)),
    "fewer bytes": npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2, 2), }", bytes(16)),
    "fields": npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2, 2, 2), }", bytes(32)),
    "complex": npy("{'descr': '<c8', 'fortran_order': False, 'shape': (2, 2, 2), }", bytes(64)),
}


@pytest.mark.parametrize("content", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_array_is_refused_by_its_name(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "inputs.npy"
    path.write_bytes(content)
    with pytest.raises(ScoringError, match=r"inputs\.npy: "):
        read(path, PLAIN)


@settings(max_examples=200)
@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=6), st.integers(0, 400))
def test_a_damaged_array_is_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, int]], cut: int
) -> None:
    path = tmp_path_factory.mktemp("damaged") / "inputs.npy"
    np.save(path, np.zeros((20, 2, 2), np.float32))
    content = bytearray(path.read_bytes())
    for place, value in changes:
        content[place % len(content)] = value
    path.write_bytes(content[: len(content) - cut])
    with suppress(ScoringError):
        assert read(path, PLAIN).shape[1:] == PLAIN.shape


@pytest.mark.parametrize(
    ("column", "found"),
    [
        (pa.array([0, 1], pa.timestamp("us")), r"timestamp\[us\]"),
        (pa.array([0, 1], pa.date32()), r"date32\[day\]"),
        (pa.array(["x", "y"]).dictionary_encode(), "dictionary<"),
        (pa.array([[1.0], [2.0]]), "list<"),
        (pa.array([{"x": 1.0}, {"x": 2.0}]), "struct<"),
        (pa.array([b"1", b"2"]), "binary"),
        (pa.nulls(2), "null"),
    ],
    ids=lambda one: str(one)[:20],
)
def test_a_column_of_parquet_that_holds_no_numbers_is_named(tmp_path: Path, column: Any, found: str) -> None:
    path, plain = tmp_path / "inputs.parquet", pa.array([1.0, 2.0])
    parquet.write_table(pa.table({"a": plain, "b": column, "c": plain, "d": plain, "when": column}), path)
    with pytest.raises(ScoringError, match=rf"inputs\.parquet: column 'b': found {found}.*expected numbers"):
        read(path, FEATURE_SPEC)


def test_truth_values_and_decimals_are_numbers_in_every_table(tmp_path: Path) -> None:
    truths, money = pa.array([True, False]), pa.array([Decimal("1.25"), Decimal("-3.50")], pa.decimal128(5, 2))
    table = pa.table({"a": truths, "b": money, "c": pa.array([1, 2]), "d": pa.array([0.5, 0.5], pa.float32())})
    parquet.write_table(table, tmp_path / "inputs.parquet")
    (tmp_path / "inputs.csv").write_text("a,b,c,d\nTrue,1.25,1,0.5\nFalse,-3.50,2,0.5\n")
    for suffix in ("parquet", "csv"):
        found = read(tmp_path / f"inputs.{suffix}", FEATURE_SPEC)
        np.testing.assert_array_equal(found, [[1, 1.25, 1, 0.5], [0, -3.5, 2, 0.5]])


@pytest.mark.parametrize("row", ["17,1,2,3,4", "1,2,3", "1,2,3,4,"])
@pytest.mark.parametrize("names", ["a,b,c,d", "d,c,b,a"])
def test_a_row_of_another_length_than_the_header_is_refused(tmp_path: Path, names: str, row: str) -> None:
    """As of row names, which R writes without a name in the header: read by place, all values would be one off."""
    path = tmp_path / "inputs.csv"
    path.write_text(f"{names}\n{row}\n")
    found = row.count(",") + 1
    with pytest.raises(ScoringError, match=rf"row 0 \(line 2\): found {found} columns, expected 4 as in the header"):
        read(path, FEATURE_SPEC)


def test_an_underscore_makes_no_number(tmp_path: Path) -> None:
    path = tmp_path / "inputs.csv"
    path.write_text("a,b,c,d\n1,2,1_000,4\n")
    with pytest.raises(ScoringError, match=r"row 0 \(line 2\), column 'c': found '1_000', expected a number"):
        read(path, FEATURE_SPEC)


def test_a_damaged_page_of_parquet_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "inputs.parquet"
    names = [f"c{k}" for k in range(4)]
    parquet.write_table(pa.table({name: np.random.default_rng(0).normal(size=2000) for name in names}), path)
    content = bytearray(path.read_bytes())
    content[4:400] = bytes(396)
    path.write_bytes(content)
    with pytest.raises(ScoringError, match=r"inputs\.parquet: found a damaged .parquet file"):
        read(path, PLAIN)


@pytest.mark.parametrize("text", ['a,b,c,d\n1,2,3,"4\n5,6,7,8\n', 'a,b,c,d\n1,2,3,"4"5\n'])
def test_a_quote_that_does_not_end_its_cell_swallows_no_row(tmp_path: Path, text: str) -> None:
    path = tmp_path / "inputs.csv"
    path.write_text(text)
    with pytest.raises(ScoringError, match=r"found no \.csv file .* every quoted cell ends with its quote"):
        read(path, FEATURE_SPEC)


def test_a_missing_truth_value_is_named(tmp_path: Path) -> None:
    plain = pa.array([1.0, 2.0])
    table = pa.table({"a": plain, "b": pa.array([True, None]), "c": plain, "d": plain})
    parquet.write_table(table, tmp_path / "inputs.parquet")
    with pytest.raises(ScoringError, match=r"row 1, column 'b': found nan, expected a finite number"):
        read(tmp_path / "inputs.parquet", FEATURE_SPEC)


@pytest.mark.parametrize("kind", [pa.timestamp("ns"), pa.timestamp("ns", "UTC"), pa.time64("ns"), pa.duration("ns")])
def test_times_of_nanoseconds_are_kept_as_text(tmp_path: Path, kind: Any) -> None:
    plain = pa.array([1.0, 2.0])
    times = pa.array([3_600_000_000_001, None], pa.int64()).cast(kind)
    parquet.write_table(pa.table(dict.fromkeys("abcd", plain) | {"when": times}), tmp_path / "inputs.parquet")
    source = open_source(tmp_path / "inputs.parquet", FEATURE_SPEC, keep=["when"])
    (batch,) = source.batches(0, 2)
    first, second = batch.kept["when"]
    assert "000000001" in str(first)
    assert second is None
