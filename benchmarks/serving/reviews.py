"""A text classifier of transformers around made-up reviews, its bundle by default options, and requests with texts."""

import itertools
import json
import random
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

from benchmarks.serving.digits import PREDICT, Request
from benchmarks.serving.fitted import SERVING
from demur import FitConfig, fit_bundle
from demur.service.bundle import MANIFEST

ENDS = ["awful", "poor", "dull", "broken", "cold"], ["great", "lovely", "superb", "fine", "warm"]
THINGS = ["the film", "the room", "our guide", "the soup", "my seat", "the staff", "this book", "the band"]
PARTS = THINGS, ["was", "is", "seemed", "felt"], ["", "really ", "rather "], [*ENDS[0], *ENDS[1]]
SENTENCES, TRAIN, HELD_OUT, STEPS = 4, 2000, 800, 120
SEED = 0


def reviews(count: int, seed: int) -> tuple[list[str], list[int]]:
    """Texts of four sentences, which all praise or all do not, and which of both."""
    draw = random.Random(seed)
    sentences = [f"{thing} {verb} {degree}{end}" for thing, verb, degree, end in itertools.product(*PARTS)]
    by_label = [[one for one in sentences if one.split()[-1] in ends] for ends in ENDS]
    labels = [draw.randrange(2) for _ in range(count)]
    return [", and ".join(draw.choices(by_label[label], k=SENTENCES)) for label in labels], labels


def tokenizer_of(texts: list[str]) -> PreTrainedTokenizerFast:
    """BERT's steps, with a vocabulary of the words and letters of these texts: a trainer breaks ties by chance."""
    normalizer, splitter = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    words = {word for text in texts for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text))}
    letters = sorted({letter for word in words for letter in word})
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    pieces = dict.fromkeys([*special, *letters, *(f"##{letter}" for letter in letters), *sorted(words)])
    found = Tokenizer(models.WordPiece({piece: number for number, piece in enumerate(pieces)}, unk_token="[UNK]"))
    found.normalizer, found.pre_tokenizer = normalizer, splitter
    found.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=found, model_max_length=64, **names)  # type: ignore[no-untyped-call]


def bundle() -> Path:
    """Fitted where there is none yet, around a BERT of the size called tiny: 2 layers of width 128."""
    folder = SERVING / "reviews"
    if (folder / MANIFEST).is_file():
        return folder
    (texts, labels), held_out = reviews(TRAIN, SEED), reviews(HELD_OUT, SEED + 1)
    tokenizer = tokenizer_of(texts)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        config = BertConfig(
            vocab_size=500, hidden_size=128, num_hidden_layers=2, num_attention_heads=2, intermediate_size=512
        )
        network = BertForSequenceClassification(config)
        optimiser = torch.optim.Adam(network.parameters(), 1e-3)
        for _ in range(STEPS):
            chosen = torch.randint(0, TRAIN, (64,)).tolist()
            encoded = tokenizer([texts[i] for i in chosen], padding=True, return_tensors="pt")
            optimiser.zero_grad()
            network(**encoded, labels=torch.tensor([labels[i] for i in chosen])).loss.backward()
            optimiser.step()
    folder.parent.mkdir(parents=True, exist_ok=True)
    named = FitConfig(name="reviews")
    return fit_bundle(network, (texts, labels), folder, calibration_loader=held_out, tokenizer=tokenizer, config=named)


def request(count: int) -> Request:
    """The native API with so many texts."""
    texts, _ = reviews(count, SEED + 2)
    return Request(f"{count} texts" if count > 1 else "1 text", PREDICT, json.dumps({"texts": texts}).encode(), count)
