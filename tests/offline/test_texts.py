"""A text classifier, from texts to texts: fitted, served, evaluated, and by a recipe."""

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import helper, numpy_helper
from tokenizers import Tokenizer
from torch import Tensor, nn

from demur.offline import FitConfig, fit_bundle
from demur.offline.evaluation.evaluate import evaluate
from demur.offline.recipes.run import check_recipe, evaluate_recipe, fit_recipe
from demur.service.inference.predictor import Predictor
from tests.support.bundles import WORDS, tokenizer_json

pytestmark = pytest.mark.usefixtures("short_fits")
RNG = np.random.default_rng(0)
FILLING = {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0}
TOKENIZER = Tokenizer.from_str(
    tokenizer_json(truncation=None, padding={**FILLING, "pad_type_id": 0, "pad_token": "[PAD]"}).decode()
)


def drawn(count: int) -> tuple[list[str], list[int]]:
    """Texts of up to six words, and whether their last word is the better one."""
    labels = RNG.integers(0, 2, count)
    ends = np.where(labels == 1, "good", "bad")
    starts = [" ".join(RNG.choice(["the", "film", "was"], RNG.integers(1, 6))) for _ in range(count)]
    return [f"{start} {end}" for start, end in zip(starts, ends, strict=True)], labels.tolist()


class Mean(nn.Module):
    """The mean over the words of a text, of vectors, and a layer; small, and by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(len(WORDS), 8)
        self.head = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        mask = attention_mask.unsqueeze(-1).to(self.words.weight.dtype)
        found: Tensor = self.head((self.words(input_ids) * mask).sum(1) / mask.sum(1))
        return found


def trained(texts: list[str], labels: list[int]) -> Mean:
    torch.manual_seed(0)
    network, encoded = Mean(), TOKENIZER.encode_batch(texts)
    ids = torch.tensor([one.ids for one in encoded])
    mask = torch.tensor([one.attention_mask for one in encoded])
    optimiser = torch.optim.Adam(network.parameters(), 2e-2)
    for _ in range(60):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(ids, mask), torch.tensor(labels)).backward()
        optimiser.step()
    return network.eval()


TRAIN, HELD_OUT, TEST = drawn(300), drawn(200), drawn(100)
CONFIG = FitConfig(subnetwork_size=40)


@pytest.fixture(scope="module")
def network() -> Mean:
    return trained(*TRAIN)


@pytest.fixture(scope="module")
def predictor(network: Mean, tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    out = tmp_path_factory.mktemp("texts") / "bundle"
    fit_bundle(network, TRAIN, out, calibration_loader=HELD_OUT, tokenizer=TOKENIZER, config=CONFIG)
    return Predictor.load(out)


def test_texts_go_all_the_way(network: Mean, predictor: Predictor) -> None:
    texts, labels = TEST
    found = predictor.predict(texts)
    with torch.no_grad():
        for text, mean in zip(texts[:10], found.mean, strict=False):
            one = TOKENIZER.encode(text)
            expected = network(torch.tensor([one.ids]), torch.tensor([one.attention_mask]))[0]
            np.testing.assert_allclose(mean, expected, rtol=1e-4, atol=1e-5)
    assert found.probabilities is not None
    assert (found.probabilities.argmax(1) == labels).mean() > 0.95
    assert predictor.manifest.input.range is None
    assert predictor.manifest.input.text is not None
    assert [one.name for one in predictor.manifest.rejection or ()] == ["random-tokens", "constant-token"]
    assert predictor.predict(["[UNK] [UNK] [UNK]"]).score[0] > np.median(found.score)


def test_they_are_evaluated(predictor: Predictor) -> None:
    figures = evaluate(predictor, TEST, ["unheard of words"] * 20)
    assert figures.laplace["accuracy"].value > 0.95
    assert figures.foreign_examples == 20


def test_tokens_and_texts_give_the_same_bundle(network: Mean, predictor: Predictor, tmp_path: Path) -> None:
    assert predictor.reader is not None

    def tokens(texts: list[str], labels: list[int]) -> list[tuple[dict[str, Tensor], Tensor]]:
        assert predictor.reader is not None
        numbers = predictor.reader.read(texts, "").numbers
        named = {"input_ids": numbers["ids"], "attention_mask": numbers["mask"]}
        return [({name: torch.as_tensor(array) for name, array in named.items()}, torch.tensor(labels))]

    out, held_out = tmp_path / "bundle", tokens(*HELD_OUT)
    fit_bundle(network, tokens(*TRAIN), out, calibration_loader=held_out, tokenizer=TOKENIZER, config=CONFIG)
    again = Predictor.load(out)
    assert again.manifest.input == predictor.manifest.input
    np.testing.assert_allclose(again.predict(TEST[0]).variance, predictor.predict(TEST[0]).variance, rtol=1e-3)


def test_another_score_and_another_selection(network: Mean, tmp_path: Path) -> None:
    config = FitConfig(subnetwork_size=40, selection="wasserstein-laplace", score="predictive_entropy")
    out, warned = tmp_path / "bundle", list[str]()
    fit_bundle(network, TRAIN, out, calibration_loader=HELD_OUT, tokenizer=TOKENIZER, config=config, say=warned.append)
    assert Predictor.load(out).predict(TEST[0]).rejected.mean() < 0.2
    assert not any("filled" in line or "tokens up to" in line for line in warned)


@pytest.mark.parametrize("length", [4, 12])
def test_a_file_for_one_length_gets_texts_of_this_length(length: int, tmp_path: Path) -> None:
    """However long the tokenizer would make them."""
    rows = np.random.default_rng(1).normal(size=(len(WORDS), 6)).astype(np.float32)
    nodes = [
        helper.make_node("Gather", ["rows", "ids"], ["vectors"]),
        helper.make_node("ReduceMean", ["vectors", "axes"], ["mean"], keepdims=0),
        helper.make_node("Gemm", ["mean", "weight"], ["logits"]),
    ]
    constants = {"rows": rows, "axes": np.array([1]), "weight": np.eye(6, 2, dtype=np.float32)}
    graph = helper.make_graph(
        nodes,
        "texts",
        [helper.make_tensor_value_info("ids", onnx.TensorProto.INT64, ["n", length])],
        [helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["n", 2])],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    path = tmp_path / "texts.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), path)
    fit_bundle(path, TRAIN, tmp_path / "bundle", calibration_loader=HELD_OUT, tokenizer=TOKENIZER)
    predictor = Predictor.load(tmp_path / "bundle")
    assert predictor.manifest.input.shape == (length,)
    assert np.isfinite(predictor.predict(TEST[0]).mean).all()


def test_a_recipe_has_a_tokenizer(tmp_path: Path) -> None:
    recipe = tmp_path / "texts.py"
    recipe.write_text(RECIPE)
    assert any("2 inputs" in line for line in check_recipe(recipe, {}))
    assert fit_recipe(recipe, tmp_path / "bundle", {})
    figures = evaluate_recipe(Predictor.load(tmp_path / "bundle"), recipe)
    assert figures.examples == 40


RECIPE = f"""
import torch
from tokenizers import Tokenizer
from torch import nn
from demur import FitConfig

config = FitConfig(subnetwork_size=20)
tokenizer = Tokenizer.from_str({TOKENIZER.to_str()!r})

class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.head = nn.Embedding(8, 4), nn.Linear(4, 2)

    def forward(self, ids, mask):
        return self.head((self.words(ids) * mask.unsqueeze(-1)).sum(1))

def model():
    torch.manual_seed(0)
    return Network()

def train_data():
    return ["the film was good", "bad film"] * 100, [1, 0] * 100

def calibration_data():
    return ["the film was good film", "film bad"] * 50, [1, 0] * 50

def test_data():
    return ["good film", "film bad"] * 20, [1, 0] * 20
"""
