"""service/format/model_card.py: README.md of a bundle."""

import dataclasses
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from demur.service.bundle import InputSpec, Manifest, read_bundle, read_manifest
from demur.service.format.files import README
from demur.service.format.manifest_input import InputPart
from demur.service.format.model_card import model_card
from demur.service.inference.predictor import Predictor
from tests.support.bundles import Synthetic
from tests.support.fake_hub import fake_hub
from tests.support.pages import blocks
from tests.support.server import ROOT

GOLDEN = ROOT / "tests/golden/v1/bundle"
LIBRARY_TASKS = {"image-classification", "tabular-classification", "tabular-regression", "text-classification"}


@pytest.fixture(scope="module")
def golden() -> Manifest:
    return read_manifest(GOLDEN)[0]


def metadata(card: str) -> dict[str, object]:
    start, block, _ = card.split("---\n", 2)
    assert start == ""
    found: dict[str, object] = yaml.safe_load(block)
    return found


def test_the_writer_puts_it_beside_the_files_and_the_manifest_does_not_list_it(any_bundle: Synthetic) -> None:
    bundle = read_bundle(any_bundle.path)
    assert (any_bundle.path / README).read_text() == model_card(bundle.manifest)
    assert README not in bundle.manifest.files


def test_it_says_what_predict_takes(golden: Manifest) -> None:
    assert "predict(inputs)    # n x 1 x 8 x 8, float32" in model_card(golden)
    parts = InputPart("age", ()), InputPart("job", (), "int64")
    several = dataclasses.replace(golden, input=InputSpec(shape=(2,), parts=parts))
    assert "predict(inputs)    # an array of each by its name: age, job" in model_card(several)


def test_it_says_what_the_fit_measured(golden: Manifest) -> None:
    card = model_card(golden)
    assert "# golden-digits, version 1" in card
    assert "posterior over 100 of its 9,930 weights" in card
    assert "| log-likelihood | -0.023 | -0.029 | -0.036 |" in card
    assert "| scaled by 10 | 97 % |" in card
    assert metadata(card)["pipeline_tag"] == "image-classification"
    assert metadata(card)["library_name"] == "demur"


def test_its_blocks_run(any_bundle: Synthetic, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEMUR_CACHE_DIR", str(tmp_path))
    found = blocks(any_bundle.path / README)
    assert [language for language, _ in found] == ["sh", "python"]
    spec = any_bundle.manifest.input
    names: dict[str, Any] = {"inputs": np.random.default_rng(0).normal(size=(2, *spec.shape)).astype(spec.dtype)}
    with fake_hub() as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        monkeypatch.setenv("HF_TOKEN", "hf_secret")
        Predictor.load(any_bundle.path).push_to_hub("OWNER/NAME")
        exec(found[1][1], names)
    assert len(names["prediction"].rejected) == 2
    assert shlex.split(found[0][1], comments=True) == ["demur", "serve", "hf://OWNER/NAME"]


def test_its_task_is_one_that_hubs_know_or_none(any_bundle: Synthetic) -> None:
    assert metadata((any_bundle.path / README).read_text()).get("pipeline_tag") in {*LIBRARY_TASKS, None}


def test_names_mean_nothing_to_markdown_or_yaml(golden: Manifest) -> None:
    names = ("<script>", "a|b", "*c*", "[d](e)", "---\nlicense: mit", *map(str, range(5)))
    hostile = dataclasses.replace(golden, name="# x `y`", class_names=names, warnings=("<b>bold</b>",))
    card = model_card(hostile)
    assert metadata(card) == metadata(model_card(golden))
    assert r"# \# x \`y\`, version 1" in card
    for wanted in (r"\<script\>", r"a\|b", r"\*c\*", r"\[d\](e)", r"\<b\>bold\</b\>"):
        assert wanted in card
    assert "license: mit" not in card.splitlines()


def test_many_classes_are_not_all_named(golden: Manifest) -> None:
    card = model_card(dataclasses.replace(golden, class_names=tuple(f"class{i}" for i in range(10))))
    assert "class9)" in card


def test_an_edited_page_is_no_error(folder: Path) -> None:
    (folder / README).write_text("# Mine")
    read_bundle(folder)
