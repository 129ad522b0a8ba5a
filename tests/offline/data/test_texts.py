"""offline/data/texts.py: a user's tokenizer as a bundle holds it, and texts as a network takes them."""

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.utils.data import DataLoader
from transformers import PreTrainedTokenizerFast

from demur.offline.data.given import given_data, given_foreign
from demur.offline.data.texts import MOST_TOKENS, TextEncoder, with_text
from demur.service.bundle import InputPart, InputSpec, InputText
from demur.service.inference.texts import TextError
from tests.support.bundles import tokenizer_json

TEXTS = ["the film was good", "the film", "bad", "the film was bad"]
LONG = ["the film was good " * 300, "bad"]
TARGETS = [1, 1, 0, 0]


class Several(nn.Module):
    """The arguments of transformers' networks."""

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor, labels: Tensor | None = None
    ) -> Tensor:
        raise NotImplementedError


class Alone(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        raise NotImplementedError


class ByHand(nn.Module):
    def forward(self, ids: Tensor, mask: Tensor) -> Tensor:
        raise NotImplementedError


def plain(**filling: Any) -> Tokenizer:
    """A tokenizer of the package, which fills and does not cut."""
    tokenizer = Tokenizer.from_str(tokenizer_json(truncation=None, padding=None).decode())
    if filling:
        tokenizer.enable_padding(pad_id=0, pad_token="[PAD]", **{k: v for k, v in filling.items() if k != "pad"})
    return tokenizer


def fast(**options: Any) -> PreTrainedTokenizerFast:
    given = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", **options}
    return PreTrainedTokenizerFast(tokenizer_object=plain(), **given)


@pytest.mark.parametrize(
    ("tokenizer", "texts", "length"),
    [
        (plain(pad=True), TEXTS, 5),
        (plain(length=9), TEXTS, 9),
        (plain(pad=True), LONG, MOST_TOKENS),
        (fast(), TEXTS, 5),
        (fast(model_max_length=3), TEXTS, 3),
        (fast(model_max_length=10**30), LONG, MOST_TOKENS),
    ],
)
def test_the_length_is_that_of_the_longest_text_within_bounds(tokenizer: Any, texts: list[str], length: int) -> None:
    assert TextEncoder.of(tokenizer, texts).reader.length == length


def test_a_tokenizer_that_was_told_to_cut_later_is_taken_at_its_word() -> None:
    tokenizer = plain(pad=True)
    tokenizer.enable_truncation(700)
    assert TextEncoder.of(tokenizer, LONG).reader.length == 700
    assert (tokenizer.truncation or {})["max_length"] == 700  # it is left as it was


@pytest.mark.parametrize(
    ("network", "tokenizer", "names"),
    [
        (Several(), fast(), ["input_ids", "attention_mask"]),
        (Several(), fast(model_input_names=["input_ids", "token_type_ids"]), ["input_ids", "token_type_ids"]),
        (Several(), plain(pad=True), ["input_ids", "attention_mask"]),
        (ByHand(), plain(pad=True), ["ids", "mask"]),
        (Alone(), fast(), None),
    ],
)
def test_a_network_takes_what_its_arguments_are_called(network: nn.Module, tokenizer: Any, names: Any) -> None:
    found = TextEncoder.of(tokenizer, TEXTS, network).encoded(TEXTS, "texts")
    ids = [[2, 3, 4, 5, 6], [2, 3, 4, 0, 0], [2, 7, 0, 0, 0], [2, 3, 4, 5, 7]]
    if names is None:
        assert isinstance(found, Tensor)
        assert found.tolist() == ids
    else:
        assert isinstance(found, dict)
        assert list(found) == names
        assert found[names[0]].tolist() == ids


def test_the_other_side_is_filled_where_the_tokenizer_does() -> None:
    found = TextEncoder.of(fast(padding_side="left"), TEXTS).encoded(["bad"], "texts")
    assert isinstance(found, Tensor)
    assert found.tolist() == [[0, 0, 0, 2, 7]]


@pytest.mark.parametrize("texts", [TEXTS, np.array(TEXTS), pd.Series(TEXTS, index=[3, 1, 2, 0])])
@pytest.mark.parametrize("targets", [TARGETS, np.array(TARGETS), torch.tensor(TARGETS), pd.Series(TARGETS)])
def test_pairs_of_texts_and_targets(texts: Any, targets: Any) -> None:
    encoder = TextEncoder.of(fast(), TEXTS, Several())
    data = given_data((texts, targets), "data", encoder=encoder)
    ((inputs, values),) = data.pairs(torch.device("cpu"))
    assert values.tolist() == TARGETS
    assert inputs[2].tolist() == [1, 1, 0, 0, 0, 2, 7, 0, 0, 0]  # mask, then numbers: by their names
    assert len(data.batches.dataset) == 4  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("data", "encoder", "words"),
    [
        ((TEXTS, TARGETS), None, r"found texts, expected numbers; of texts, all data are pairs.*fit_bundle\("),
        ((pd.DataFrame({"text": TEXTS}), TARGETS), plain(pad=True), "one column of texts, expected the column; give"),
        (({"text": TEXTS}, TARGETS), plain(pad=True), r"found texts in another form.*frame\['text'\]"),
        ((np.array(TEXTS)[:, None], np.array(TARGETS)), plain(pad=True), "found texts in another form"),
        (([[text] for text in TEXTS], TARGETS), plain(pad=True), "found texts in another form"),
        (([b"good", b"bad"], [0, 1]), plain(pad=True), "found texts in another form"),
        ((TEXTS, TARGETS[:3]), plain(pad=True), "found 4 texts and 3 targets, expected as many of each"),
        (([*TEXTS, None], [*TARGETS, 0]), plain(pad=True), r"data, texts\[4\]: found None, expected a text"),
        ((TEXTS, ["good"] * 4), plain(pad=True), "data, targets, row 0: found 'good', expected a number"),
    ],
)
def test_pairs_that_are_refused(data: Any, encoder: Any, words: str) -> None:
    with pytest.raises((ValueError, TextError), match=words):
        given_data(data, "data", encoder=None if encoder is None else TextEncoder.of(encoder, TEXTS))


class OwnSteps(PreTrainedTokenizerFast):
    """It turns letters around, which its file does not say."""

    def __call__(self, text: Sequence[str], **options: Any) -> Any:
        return super().__call__([one[::-1] for one in text], **options)


@pytest.mark.parametrize(
    ("tokenizer", "kind", "words"),
    [
        (str.split, TypeError, r"tokenizer: found method_descriptor, expected a fast tokenizer of transformers"),
        ("bert-base-uncased", TypeError, "found str, expected a fast tokenizer"),
        (plain(), ValueError, r"call tokenizer.enable_padding\(pad_id="),
        (fast(pad_token=None), ValueError, r"without a token that fills, expected one; set tokenizer\.pad_token"),
        (OwnSteps(tokenizer_object=plain(), pad_token="[PAD]"), ValueError, "OwnSteps has steps of its own"),
        (fast(split_special_tokens=True), ValueError, "found split_special_tokens=True, which its file cannot hold"),
    ],
)
def test_tokenizers_that_are_refused(tokenizer: Any, kind: type[Exception], words: str) -> None:
    with pytest.raises(kind, match=words):
        TextEncoder.of(tokenizer, TEXTS)


@pytest.mark.parametrize(
    "batches",
    [
        [(["good", "bad"], torch.tensor([1, 0]))],
        [(("good", "bad"), torch.tensor([1, 0]))],
        [{"text": ["good"], "label": torch.tensor([1])}],
        [("good", 1), ("bad", 0), ("bad", 0)],
        DataLoader([("good", 1), ("bad", 0)], batch_size=2),  # type: ignore[arg-type]
    ],
)
def test_batches_of_texts_are_refused_with_the_remedy(batches: Any) -> None:
    with pytest.raises(ValueError, match=r"of texts, give the pair \(texts, labels\), two lists or columns"):
        list(given_data(batches, "data").pairs(torch.device("cpu")))


def test_columns_of_targets_have_their_names() -> None:
    targets = pd.DataFrame({"stars": [1.0, 2.0, 3.0, 4.0], "length": [4.0, 2.0, 1.0, 4.0]})
    data = given_data((pd.Series(TEXTS), targets), "data", encoder=TextEncoder.of(fast(), TEXTS))
    assert data.targets == ("stars", "length")
    ((_, values),) = data.pairs(torch.device("cpu"))
    assert values.tolist() == targets.to_numpy().tolist()


@pytest.mark.parametrize(
    ("data", "texts", "targets"),
    [
        (["a", "b", "c"], ["a", "b", "c"], [0, 0, 0]),
        (["a", "b"], ["a", "b"], [0, 0]),
        ((["a", "b"], [1, 2]), ["a", "b"], [1, 2]),
    ],
)
def test_foreign_texts_need_no_targets(data: Any, texts: list[str], targets: list[int]) -> None:
    found = given_foreign(data, "data", encoder=TextEncoder.of(fast(), TEXTS))
    assert list(found.texts) == texts
    ((_, values),) = found.pairs(torch.device("cpu"))
    assert values.tolist() == targets


def test_a_network_may_have_fewer_positions() -> None:
    class Positions(Several):
        def __init__(self, **config: Any) -> None:
            super().__init__()
            self.config = SimpleNamespace(**config)

    assert TextEncoder.of(fast(), TEXTS, Positions(max_position_embeddings=3)).reader.length == 3
    roberta = Positions(max_position_embeddings=6, model_type="roberta", pad_token_id=1)
    assert TextEncoder.of(fast(), TEXTS, roberta).reader.length == 4


def test_a_text_may_be_cut_before_it_is_filled() -> None:
    tokenizer = plain(length=9)
    tokenizer.enable_truncation(3)
    reader = TextEncoder.of(tokenizer, TEXTS).reader
    assert (reader.length, reader.most) == (9, 3)
    assert reader.read(TEXTS[:1], "").numbers["ids"].tolist() == [[2, 3, 4, 0, 0, 0, 0, 0, 0]]


def test_data_that_are_tokens_already() -> None:
    parts = tuple(InputPart(name, (6,), "int64") for name in ("attention_mask", "input_ids"))
    spec, file = with_text(InputSpec((12,), parts=parts), fast(), None)
    assert spec.text == InputText(("mask", "ids"))
    assert file is not None
    again = TextEncoder.of_bundle(TextEncoder.of(Tokenizer.from_str(file.decode()), TEXTS).reader, spec)
    assert again.reader.length == 6
    assert again.takes == {"attention_mask": "mask", "input_ids": "ids"}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (InputSpec((4,)), "tokenizer: input.text: found inputs of .*float32.*, as a tokenizer makes them"),
        (InputSpec((4, 4), "int64"), "expected int64 and one length"),
        (InputSpec((3,), parts=(InputPart("pixels", (3,)),)), "found a network with the inputs 'pixels', expected"),
    ],
)
def test_networks_that_take_no_tokens(spec: InputSpec, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        with_text(spec, fast(), None)


def test_a_fit_leaves_the_tokenizer_and_is_not_told_by_its_last_call() -> None:
    """transformers keeps how long the last call made texts; a longer text was cut for good."""
    tokenizer, untouched = fast(model_max_length=64), fast(model_max_length=64)
    tokenizer(TEXTS, truncation=True, padding="max_length", max_length=3)
    backend = tokenizer.backend_tokenizer
    before = backend.truncation, backend.padding
    found = TextEncoder.of(tokenizer, TEXTS).reader
    assert (backend.truncation, backend.padding) == before
    assert found.data == TextEncoder.of(untouched, TEXTS).reader.data
    assert untouched(LONG[0])["input_ids"] == fast()(LONG[0])["input_ids"]


def test_a_text_is_cut_on_the_side_that_the_tokenizer_cuts() -> None:
    tokenizer = fast(model_max_length=4, truncation_side="left")
    read = TextEncoder.of(tokenizer, LONG).reader.read(LONG, "texts").numbers["ids"]
    own = fast(truncation_side="left")(LONG, truncation=True, padding="max_length", max_length=4)["input_ids"]
    assert read.tolist() == own
    assert read.tolist() != fast()(LONG, truncation=True, padding="max_length", max_length=4)["input_ids"]


def test_steps_of_its_own_are_seen_in_any_text() -> None:
    class Late(OwnSteps):
        def __call__(self, text: Sequence[str], **options: Any) -> Any:
            return super().__call__(text, **options) if "rare" in text else fast()(text, **options)

    texts = [*TEXTS * 500, "rare"]
    with pytest.raises(ValueError, match="Late has steps of its own"):
        TextEncoder.of(Late(tokenizer_object=plain(), pad_token="[PAD]"), texts)
