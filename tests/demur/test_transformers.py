"""Walks of users of transformers and timm, by the how-tos: train, fit in a callback, post texts and pictures."""

import itertools
import random
import re
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    Trainer,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
    ViTImageProcessorPil,
)

from benchmarks.serving.reviews import ENDS, PARTS, tokenizer_of
from demur import Predictor, fit_bundle, image_spec
from tests.support.client import base64_text, encoded, serving
from tests.support.server import ROOT

pytestmark = pytest.mark.slow


def reviews() -> tuple[list[str], list[int]]:
    """Texts and whether they praise, in a random order."""
    texts = [f"{thing} {verb} {degree}{end}" for thing, verb, degree, end in itertools.product(*PARTS)]
    random.Random(0).shuffle(texts)
    return texts, [int(text.split()[-1] in ENDS[1]) for text in texts]


def callback_of_the_page() -> Any:
    """The class `FitBundle` as the how-tos give it."""
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/howto.md").read_text(), re.DOTALL)
    (code,) = [block for block in blocks if "class FitBundle(TrainerCallback)" in block]
    names: dict[str, Any] = {}
    exec(compile(code, "howto.md", "exec"), names)
    return names["FitBundle"]


@pytest.mark.filterwarnings("ignore:.*pin_memory.*:UserWarning")  # there is no GPU
def test_a_text_classifier_is_trained_fitted_in_a_callback_and_asked_for_texts(tmp_path: Path) -> None:
    texts, labels = reviews()
    tokenizer = tokenizer_of(texts)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        id2label={0: "blame", 1: "praise"},
        label2id={"blame": 0, "praise": 1},
    )
    model = BertForSequenceClassification(config)
    rows = [{**tokenizer(text), "labels": label} for text, label in zip(texts[:600], labels[:600], strict=True)]
    out, held_out = tmp_path / "bundle", (texts[600:], labels[600:])
    arguments = TrainingArguments(
        str(tmp_path / "trainer"),
        num_train_epochs=20,
        per_device_train_batch_size=64,
        learning_rate=3e-3,
        use_cpu=True,
        disable_tqdm=True,
        report_to=[],
        save_strategy="no",
        dataloader_pin_memory=False,
    )
    Trainer(
        model=model,
        args=arguments,
        train_dataset=rows,
        data_collator=DataCollatorWithPadding(tokenizer),
        processing_class=tokenizer,
        callbacks=[callback_of_the_page()(out, (texts[:600], labels[:600]), held_out)],
    ).train()

    predictor = Predictor.load(out)
    assert predictor.manifest.class_names == ("blame", "praise")
    found = predictor.predict(held_out[0])
    assert found.probabilities is not None
    assert (found.probabilities.argmax(1) == held_out[1]).mean() > 0.95
    assert found.rejected.mean() < 0.15
    model.eval()
    for text in held_out[0][:5]:
        with torch.no_grad():
            expected = model(**tokenizer(text, return_tensors="pt")).logits
        np.testing.assert_allclose(predictor.predict([text]).mean, expected, rtol=1e-3, atol=1e-4)
    with serving(predictor) as client:
        asked = ["The soup was superb", "zebra quantum flux 17", "the the the the", "was it was", "47 11", "!?!"]
        predictions = client.predict({"texts": asked}).json()["predictions"]
    assert predictions[0]["label"] == "praise"
    assert sum(one["rejected"] for one in predictions[1:]) >= 4


STRIPES = "across", "down"


def pictures(count: int, seed: int) -> tuple[list[Image.Image], Tensor]:
    """Photographs of stripes, of 40 by 56 pixels: across or down."""
    draw = np.random.default_rng(seed)
    labels = draw.integers(0, 2, count)
    found = []
    for label in labels:
        place = np.arange(56 if label else 40) * draw.uniform(0.5, 1.0) + draw.uniform(0, 6)
        wave = 127 + 90 * np.sin(place)
        grey = np.broadcast_to(wave[None, :] if label else wave[:, None], (40, 56))
        noisy = grey[..., None] * draw.uniform(0.7, 1.0, 3) + draw.normal(0, 8, (40, 56, 3))
        found.append(Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)))
    return found, torch.as_tensor(labels)


def trained_on(network: nn.Module, inputs: Tensor, labels: Tensor) -> nn.Module:
    optimiser = torch.optim.Adam(network.parameters(), 2e-3)
    for step in range(150):
        chosen = torch.arange(step * 32, step * 32 + 32) % len(inputs)
        found = network(inputs[chosen])
        optimiser.zero_grad()
        nn.functional.cross_entropy(getattr(found, "logits", found), labels[chosen]).backward()
        optimiser.step()
    return network.eval()


def ask_for_pictures(predictor: Predictor, network: nn.Module, processed: Tensor, shown: list[Image.Image]) -> None:
    """What is posted as PNG files is answered as the network answers what was processed; noise is rejected."""
    with torch.no_grad():
        found = network(processed)
    np.testing.assert_allclose(
        predictor.predict(processed.numpy()).mean, getattr(found, "logits", found), rtol=1e-3, atol=1e-3
    )
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (40, 56, 3), np.uint8))
    files = [base64_text(encoded(picture)) for picture in (*shown, noise)]
    with serving(predictor) as client:
        predictions = client.predict({"images": files}, "?detail=full").json()["predictions"]
    logits = [list(one["logit_mean"].values()) for one in predictions[:-1]]
    np.testing.assert_allclose(logits, getattr(found, "logits", found), rtol=0.05, atol=0.1)  # levels are rounded
    assert predictions[-1]["rejected"]
    assert np.mean([one["rejected"] for one in predictions[:-1]]) < 0.2


def test_an_image_classifier_of_transformers_takes_pictures(tmp_path: Path) -> None:
    processor = ViTImageProcessorPil(size={"height": 32, "width": 32})
    (train, labels), (held, truths), (shown, _) = pictures(600, 0), pictures(400, 1), pictures(40, 2)
    x, y, z = (processor(part, return_tensors="pt")["pixel_values"] for part in (train, held, shown))
    torch.manual_seed(0)
    config = ViTConfig(
        image_size=32,
        patch_size=8,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        id2label=dict(enumerate(STRIPES)),
        label2id={name: number for number, name in enumerate(STRIPES)},
    )
    network = trained_on(ViTForImageClassification(config), x, labels)
    out = tmp_path / "bundle"
    fit_bundle(network, (x, labels), out, calibration_loader=(y, truths), input_spec=image_spec(processor))
    predictor = Predictor.load(out)
    assert predictor.manifest.class_names == STRIPES
    ask_for_pictures(predictor, network, z, shown)


class OfTimm(nn.Sequential):
    """A network with the settings that timm's networks have."""

    pretrained_cfg: ClassVar[dict[str, Any]] = {
        "input_size": (3, 32, 32),
        "interpolation": "bicubic",
        "mean": (0.485, 0.456, 0.406),
        "std": (0.229, 0.224, 0.225),
        "crop_pct": 0.9,
        "crop_mode": "center",
    }


def test_a_network_of_timm_takes_pictures(tmp_path: Path) -> None:
    (train, labels), (held, truths), (shown, _) = pictures(600, 0), pictures(400, 1), pictures(40, 2)
    x, y, z = (torch.stack([as_timm_does(picture) for picture in part]) for part in (train, held, shown))
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.Conv2d(8, 16, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(784, 2)
    network = trained_on(OfTimm(*layers), x, labels)
    out = tmp_path / "bundle"
    fit_bundle(network, (x, labels), out, calibration_loader=(y, truths), input_spec=image_spec(network))
    ask_for_pictures(Predictor.load(out), network, z, shown)


def as_timm_does(picture: Image.Image) -> Tensor:
    """The shorter side to 35 pixels (32 / 0.9), of the middle 32 by 32, scaled."""
    small = picture.resize((round(35 * 56 / 40), 35), Image.Resampling.BICUBIC)
    left = round((small.width - 32) / 2)
    pixels = np.asarray(small.crop((left, 2, left + 32, 34)), np.float32) / 255
    mean, std = (np.asarray(OfTimm.pretrained_cfg[name], np.float32) for name in ("mean", "std"))
    return torch.as_tensor(((pixels - mean) / std).transpose(2, 0, 1).copy())
