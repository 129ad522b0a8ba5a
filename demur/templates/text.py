"""Texts, one class each. The service takes texts, too.

    demur fit NAME.py --out bundles/text

Replace the data, the tokenizer and the network by yours; everything else is optional. A network of transformers does
as well, with its own tokenizer: `tokenizer = AutoTokenizer.from_pretrained(...)`.
"""

import numpy as np
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
from torch import nn

from demur import FitConfig

config = FitConfig(name="text", seed=0)  # docs/fitting.md lists every option
class_names = ["complaint", "praise"]
THINGS = ["the film", "the room", "our guide", "the soup", "my seat", "the staff", "this book", "the band"]
WORDS = ["awful", "poor", "dull", "broken", "cold"], ["great", "lovely", "superb", "fine", "warm"]


def texts(count: int, seed: int):
    """Texts and class numbers, two lists or arrays. Those of a table: frame["text"], frame["label"]."""
    draw = np.random.default_rng(seed)
    y = draw.integers(0, 2, count)
    verbs, degrees = ["was", "is", "seemed", "felt"], ["", " really", " rather", " quite"]
    rows = (map(draw.choice, (THINGS, verbs, degrees, WORDS[label])) for label in y)
    return [f"{thing} {verb}{degree} {word}" for thing, verb, degree, word in rows], y


def train_data():
    """What the network was trained on."""
    return texts(2000, seed=0)


def calibration_data():
    """Like what will be served, and not used in training: it tunes, and sets the reject threshold."""
    return texts(800, seed=1)


def test_data():
    """For `demur evaluate`; leave it out if you have none."""
    return texts(500, seed=2)


def tokenizer():
    """Numbers of words; it goes into the bundle. The filling is as for training."""
    found = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    found.normalizer, found.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    found.train_from_iterator(train_data()[0], trainers.WordLevelTrainer(special_tokens=["[PAD]", "[UNK]"]))
    found.enable_padding(pad_id=0, pad_token="[PAD]")
    return found


class Classifier(nn.Module):
    """The mean of the words' vectors, and two layers."""

    def __init__(self, words: int):
        super().__init__()
        self.words = nn.Embedding(words, 16, padding_idx=0)
        self.head = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 2))

    def forward(self, input_ids, attention_mask):
        mask = attention_mask.unsqueeze(-1)
        return self.head((self.words(input_ids) * mask).sum(1) / mask.sum(1).clamp(min=1))


def model():
    """The trained network. One that is trained elsewhere: build it, then
    `network.load_state_dict(torch.load("weights.pt", weights_only=True))`."""
    torch.manual_seed(0)
    words, (given, y) = tokenizer(), train_data()
    encoded, y = words.encode_batch(given), torch.as_tensor(y)
    ids, mask = (torch.tensor([getattr(one, name) for one in encoded]) for name in ("ids", "attention_mask"))
    ids[torch.rand(ids.shape) * mask > 0.95] = 1  # some words are hidden: it must know the number of unknown ones
    network = Classifier(words.get_vocab_size())
    optimiser = torch.optim.Adam(network.parameters(), 1e-2)
    for _ in range(100):
        optimiser.zero_grad()
        nn.functional.cross_entropy(network(ids, mask), y).backward()
        optimiser.step()
    return network.eval()
