"""service/format/json_names.py: a name that stands twice in an object is refused, however it is written."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from demur.service.format.json_names import NameTwice, check_names_once

NAMES = st.sampled_from(["inputs", "a", "b c", "", '"', "\\", "\u00e9", ":"])
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers() | st.text(max_size=5) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.lists(st.tuples(NAMES, inner), max_size=3).map(tuple),
    max_leaves=8,
)


def written(value: Any, ascii_only: bool) -> str:
    """JSON, in which a tuple of pairs is an object: its names may repeat."""
    if isinstance(value, tuple):
        pairs = (f"{json.dumps(name, ensure_ascii=ascii_only)} : {written(each, ascii_only)}" for name, each in value)
        return "{" + ", ".join(pairs) + "}"
    if isinstance(value, list):
        return "[" + ",".join(written(each, ascii_only) for each in value) + "]"
    return json.dumps(value, ensure_ascii=ascii_only)


def repeats(value: Any) -> bool:
    if isinstance(value, tuple):
        return len({name for name, _ in value}) < len(value) or any(repeats(each) for _, each in value)
    return isinstance(value, list) and any(map(repeats, value))


@given(VALUES, st.booleans())
def test_it_is_found_wherever_it_stands_and_nowhere_else(value: Any, ascii_only: bool) -> None:
    text = written(value, ascii_only).encode()
    if repeats(value):
        with pytest.raises(NameTwice):
            check_names_once(text)
    else:
        check_names_once(text)


def test_many_names_are_counted_once_each() -> None:
    """Not compared with each other: that would take minutes of a service's time."""
    names = [f"a{i}" for i in range(200_000)]
    text = "{" + ",".join(f'"{name}":1' for name in [*names, "z", "z"]) + "}"
    with pytest.raises(NameTwice, match="'z'"):
        check_names_once(text.encode())


def test_an_escape_hides_nothing() -> None:
    with pytest.raises(NameTwice, match="the name 'inputs' twice in one object"):
        check_names_once(rb'{"inputs": [1], "\u0069nputs": [2]}')


@pytest.mark.parametrize("name", [rb"\ud800", rb"a\n", rb"\u0000"])
def test_a_name_is_said_so_that_it_can_be_written(name: bytes) -> None:
    with pytest.raises(NameTwice) as refused:
        check_names_once(b'{"%s": 1, "%s": 2}' % (name, name))
    assert str(refused.value).isprintable()
    assert refused.value.name.encode()


@pytest.mark.parametrize("text", [b"", b"no", b'{"a": 1, "a": ', b'["a\\', b"[" * 100_000, b'{"a": "\xff", "a": 1}'])
def test_what_is_no_json_passes(text: bytes) -> None:
    check_names_once(text)
