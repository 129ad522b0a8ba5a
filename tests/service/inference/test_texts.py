"""service/inference/texts.py: what a bundle's tokenizer makes of texts, and what is no text."""

import pickle
import sys
from typing import Any
from unittest.mock import ANY

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from demur.service.bundle import InputSpec, InputText
from demur.service.inference.texts import MAX_CHARACTERS, TextError, TextReader, TokenizerError, texts_of
from tests.support.bundles import TEXT_SPEC, TOKENS, WORDS, tokenizer_json

READER = TextReader(tokenizer_json(), TOKENS)


def test_texts_are_cut_and_filled() -> None:
    found = READER.read(["The film", "the film was good", "", "the unheard"], "texts")
    assert found.numbers["ids"].tolist() == [[2, 3, 4, 0], [2, 3, 4, 5], [2, 0, 0, 0], [2, 3, 1, 0]]
    assert found.numbers["mask"].tolist() == [[1, 1, 1, 0], [1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 1, 0]]
    assert not found.numbers["types"].any()
    assert found.cut.tolist() == [False, True, False, False]
    assert found.warnings("texts") == [
        "texts[1]: has more than the 4 tokens that the network takes; the rest is left out"
    ]


def test_a_text_may_be_cut_before_it_is_filled() -> None:
    cuts = {"direction": "Right", "max_length": 3, "strategy": "LongestFirst", "stride": 0}
    reader = TextReader(tokenizer_json(truncation=cuts), TOKENS)
    tokens = reader.read(["the film was good", "the"], "texts")
    assert tokens.numbers["ids"].tolist() == [[2, 3, 4, 0], [2, 3, 0, 0]]
    assert tokens.warnings("texts") == [
        "texts[0]: has more than the 3 tokens that the network takes; the rest is left out"
    ]


def test_as_the_network_takes_them() -> None:
    tokens = READER.read(["the film"], "texts")
    np.testing.assert_array_equal(tokens.array(TEXT_SPEC), np.array([[1, 1, 1, 0, 2, 3, 4, 0]], np.float32))
    alone = tokens.array(InputSpec((TOKENS,), "int64", text=InputText(("ids",))))
    assert alone.dtype == np.int64
    assert alone.tolist() == [[2, 3, 4, 0]]


def test_many_cut_texts_are_counted() -> None:
    assert READER.read(["the film was good"] * 5, "texts").warnings("texts")[3:] == ["texts: 2 more such texts"]


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(), min_size=1, max_size=5))
def test_any_text_has_tokens_of_the_vocabulary(texts: list[str]) -> None:
    numbers = READER.read(texts, "texts").numbers
    for array in numbers.values():
        assert array.shape == (len(texts), TOKENS)
    assert set(np.unique(numbers["ids"]).tolist()) <= set(WORDS.values())
    assert ((numbers["mask"] == 0) <= (numbers["ids"] == WORDS["[PAD]"])).all()


@pytest.mark.parametrize(
    ("texts", "field", "words"),
    [
        ([], "texts", "found an empty list"),
        (["a", None], r"texts\[1\]", "found None, expected a text"),
        (["a" * (MAX_CHARACTERS + 1)], r"texts\[0\]", "found 100001 characters, expected at most 100000"),
        (["a", "\ud800"], r"texts\[1\]", "no text that can be read"),
    ],
)
def test_what_is_no_text(texts: list[Any], field: str, words: str) -> None:
    with pytest.raises(TextError, match=f"{field}: .*{words}") as caught:
        READER.read(texts, "texts")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


DROPPING = {"type": "BPE", "dropout": 0.3, "unk_token": None, "vocab": WORDS, "merges": []}


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"{}", "found no tokenizer"),
        (b"\xff", "found no tokenizer"),
        (tokenizer_json(5), r"found truncation and padding to \(5, 5\), expected at most, and exactly, 4"),
        (tokenizer_json(padding=None), r"found truncation and padding to \(4, None\)"),
        (tokenizer_json(model={"type": "Other"}), "found no tokenizer"),
        (tokenizer_json(model=DROPPING), r"found model.dropout 0.3, with which a text is read otherwise each time"),
    ],
)
def test_tokenizers_that_are_refused(data: bytes, words: str) -> None:
    with pytest.raises(TokenizerError, match=words):
        TextReader(data, TOKENS)


def test_the_package_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(TokenizerError, match="pip install tokenizers"):
        TextReader(tokenizer_json(), TOKENS)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["a", "b"], ["a", "b"]),
        (("a",), ["a"]),
        (np.array(["a", "b"]), ["a", "b"]),
        (np.array(["a", None], object), ["a", None]),
        (pd.Series(["a", "b"]), ["a", "b"]),
        (["a", 3], ["a", 3]),
        ([None, float("nan"), pd.NA, "a"], [None, ANY, pd.NA, "a"]),
        ([None, 1.0, "a"], None),
        ([None], None),
        ("a", None),
        (b"a", None),
        ([], None),
        ([1, "a"], None),
        (np.ones((2, 2)), None),
        (np.array([["a"]]), None),
        (pd.Series([1.0]), None),
        (pd.DataFrame({"text": ["a"]}), None),
        ({"text": "a"}, None),
        (3, None),
    ],
)
def test_what_texts_are(values: Any, expected: list[Any] | None) -> None:
    assert texts_of(values) == expected
