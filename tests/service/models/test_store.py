"""service/models/store.py: names, versions, defaults; changes are seen whole."""

from collections import Counter
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from demur.service.models.served import ServedModel
from demur.service.models.store import ModelNotFound, ModelStore, version_key
from demur.service.models.versions_file import Pinned


def model(name: str, version: str = "1") -> ServedModel:
    return cast(ServedModel, SimpleNamespace(name=name, version=version))


def test_the_first_model_is_the_default_and_the_latest_version_answers() -> None:
    store = ModelStore()
    first, newer, other = model("a", "9"), model("a", "10"), model("b")
    for one in (first, newer, other):
        assert store.put(one) is None
    assert store.find() is newer
    assert store.find("a") is newer
    assert store.find("a", "9") is first
    assert store.find("b") is other
    assert store.versions("a") == ["9", "10"]
    assert {id(one) for one in store} == {id(first), id(newer), id(other)}


def test_a_default_may_be_named_before_it_is_there() -> None:
    store = ModelStore("b")
    store.put(model("a"))
    with pytest.raises(ModelNotFound, match="a default model is not loaded; loaded are: a 1"):
        store.find()
    store.put(model("b"))
    assert store.find().name == "b"


@pytest.mark.parametrize(("name", "version"), [("x", None), ("a", "2"), (None, "2"), ("", None), ("a", "")])
def test_what_is_not_there_is_named(name: str | None, version: str | None) -> None:
    store = ModelStore()
    store.put(model("a"))
    with pytest.raises(ModelNotFound, match="loaded are: a 1"):
        store.find(name, version)


def test_a_new_one_takes_the_place_of_the_old_one() -> None:
    store = ModelStore()
    old, new = model("a"), model("a")
    store.put(old)
    assert store.put(new) is old
    assert not store.remove(old)
    assert store.find("a") is new
    assert store.remove(new)
    assert list(store) == []
    with pytest.raises(ModelNotFound, match="loaded are: none"):
        store.find("a")


def test_what_takes_the_place_of_the_first_one_answers_by_default() -> None:
    store = ModelStore()
    old, other, new = model("a"), model("b"), model("c")
    store.put(old)
    store.put(other, other)
    assert store.default == "a"
    store.put(new, old)
    store.remove(old)
    assert store.find() is new
    store.remove(new)
    assert store.default == "c"
    several = ModelStore()
    for one in (model("a", "2"), old):
        several.put(one)
    several.put(new, several.find("a", "2"))
    assert several.default == "a"  # of which a version is left
    chosen = ModelStore("a")
    chosen.put(old)
    chosen.put(new, old)
    assert chosen.default == "a"


def test_a_pinned_version_answers_and_until_it_is_there_the_one_before() -> None:
    store = ModelStore()
    store.pin({"a": Pinned("9")})
    newer, first = model("a", "10"), model("a", "9")
    store.put(newer)
    with pytest.raises(ModelNotFound, match=r"a default model, pinned to version '9', is not loaded.*: a 10"):
        store.find()
    assert store.find("a", "10") is newer
    store.put(first)
    assert store.find() is store.find("a") is store.answering("a") is first
    store.put(model("a", "11"))
    assert store.find("a") is first
    store.pin({"a": Pinned("12")})
    assert store.find("a") is first
    again = model("a", "9")
    store.put(again, first)  # the same version from another bundle
    assert store.find("a") is again
    store.put(model("a", "12"))
    assert store.find("a").version == "12"
    store.pin({})
    assert store.find("a").version == "12"
    store.put(model("a", "13"))
    assert store.find("a").version == "13"


def test_a_canary_answers_its_share_while_it_is_loaded() -> None:
    store = ModelStore()
    for version in ("9", "10", "11"):
        store.put(model("a", version))
    store.put(model("b", "1"))
    store.pin({"a": Pinned("9", {"10": 0.1, "11": 0.2, "12": 0.3})})
    tickets = np.arange(0, 1, 0.01) + 0.005
    found = Counter(store.find("a", None, partial(float, ticket)).version for ticket in tickets)
    assert found == {"10": 10, "11": 20, "9": 70}  # 12 is not there
    assert store.find("a").version == store.find().version == "9"
    assert store.find(None, None, lambda: 0.05).version == "10"
    assert store.find("a", "11", lambda: 0.05).version == "11"
    assert store.find("b", None, lambda: 0.0).version == "1"
    store.pin({"a": Pinned("8", {"10": 0.5})})
    store.remove(store.find("a", "9"))
    with pytest.raises(ModelNotFound, match="pinned to version '8'"):  # a canary does not stand in for it
        store.find("a", None, lambda: 0.0)


def test_versions_compare_by_their_numbers() -> None:
    versions = ["2024-01-02", "v10", "1.10", "v9", "1.9", "2", "10", "beta"]
    assert sorted(versions, key=version_key)[-4:] == ["1.10", "2", "10", "2024-01-02"]
    assert sorted(["v10", "v9"], key=version_key) == ["v9", "v10"]
    releases = ["1.9", "1.10-dev", "1.10-rc1", "1.10-rc2", "1.10", "1.10-gpu", "1.10.1"]
    assert sorted([*releases[4:], *releases[:4]], key=version_key) == releases


def test_of_very_many_models_an_error_names_some() -> None:
    assert len(str(ModelNotFound("a", None, [f"model {i}" for i in range(10_000)]))) < 1200


@given(st.lists(st.text(min_size=1, max_size=8), max_size=8))
def test_any_versions_can_be_compared(versions: list[Any]) -> None:
    keys = [version_key(version) for version in versions]
    assert max(keys, default=[]) == max([*keys, []])
