"""The walk of a user of transformers, by the how-tos: train with its Trainer, fit in the callback, post a text."""

import itertools
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
)

from probity import Predictor
from tests.support.client import serving
from tests.support.server import ROOT

pytestmark = pytest.mark.slow

ENDS = ["awful", "poor", "dull", "broken", "cold"], ["great", "lovely", "superb", "fine", "warm"]
PARTS = (
    ["the film", "the room", "our guide", "the soup", "my seat", "the staff", "this book", "the band"],
    ["was", "is", "seemed", "felt"],
    ["", "really ", "rather "],
    [*ENDS[0], *ENDS[1]],
)


def reviews() -> tuple[list[str], list[int]]:
    """Texts and whether they praise, in a random order."""
    texts = [f"{thing} {verb} {degree}{end}" for thing, verb, degree, end in itertools.product(*PARTS)]
    random.Random(0).shuffle(texts)
    return texts, [int(text.split()[-1] in ENDS[1]) for text in texts]


def bert_tokenizer(texts: list[str]) -> PreTrainedTokenizerFast:
    """BERT's steps, with a vocabulary of these texts."""
    found = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    found.normalizer, found.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    found.train_from_iterator(texts, trainers.WordPieceTrainer(vocab_size=200, special_tokens=special))
    found.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=found, model_max_length=64, **names)


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
    tokenizer = bert_tokenizer(texts)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=200,
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
        asked = ["The soup was superb", "zebra quantum flux 17", "the the the the the the"]
        predictions = client.predict({"texts": asked}).json()["predictions"]
    assert predictions[0]["label"] == "praise"
    assert [one["rejected"] for one in predictions] == [False, True, True]
