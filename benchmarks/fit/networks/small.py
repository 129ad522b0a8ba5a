"""The zoo's other networks: small ones written here, transformers from their configuration with random weights."""

from typing import Any

import torch
from torch import Tensor, nn


def mlp(inputs: int, width: int, outputs: int) -> nn.Module:
    """Two hidden layers."""
    return nn.Sequential(
        nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, outputs)
    )


def lenet(side: int, width: int, outputs: int) -> nn.Module:
    """LeNet-5 (LeCun et al., 1998) for images (1, side, side); 6 channels at first in the original."""
    left = (side // 2 - 4) // 2
    return nn.Sequential(
        nn.Conv2d(1, width, 5, padding=2),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Conv2d(width, width * 16 // 6, 5),
        nn.Tanh(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(width * 16 // 6 * left**2, 20 * width),
        nn.Tanh(),
        nn.Linear(20 * width, 14 * width),
        nn.Tanh(),
        nn.Linear(14 * width, outputs),
    )


def small_cnn(width: int, outputs: int) -> nn.Module:
    """Three convolutions and one linear layer for one-channel images of any size from 8 x 8."""
    return nn.Sequential(
        nn.Conv2d(1, width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(2 * width, 4 * width, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16 * width, outputs),
    )


def conv1d(channels: int, width: int, outputs: int) -> nn.Module:
    """A fully convolutional classifier of time series (Wang et al., 2017): x (B, channels, length)."""
    widths = (channels, width, 2 * width, width)
    layers: list[nn.Module] = []
    for inner, outer, kernel in zip(widths, widths[1:], (7, 5, 3), strict=False):
        layers += [nn.Conv1d(inner, outer, kernel, padding=kernel // 2), nn.BatchNorm1d(outer), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(width, outputs))


class LSTM(nn.Module):
    """A recurrent classifier of token sequences: int64 tokens (B, length) -> logits (B, outputs)."""

    def __init__(self, vocabulary: int, width: int, layers: int, outputs: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, width, layers, batch_first=True)
        self.head = nn.Linear(width, outputs)

    def forward(self, tokens: Tensor) -> Tensor:
        states, _ = self.lstm(self.embedding(tokens))
        logits: Tensor = self.head(states[:, -1])
        return logits


class Logits(nn.Module):
    """A classifier of the transformers library as a function from one tensor to logits (B, outputs)."""

    def __init__(self, classifier: Any, keyword: str) -> None:
        super().__init__()
        self.classifier, self.keyword = classifier, keyword

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(**{self.keyword: x}).logits
        return logits


def vit(side: int, patch: int, width: int, layers: int, outputs: int) -> nn.Module:
    """Vision transformer (Dosovitskiy et al., 2021), x (B, 3, side, side)."""
    from transformers import ViTConfig, ViTForImageClassification

    options: dict[str, Any] = {
        "image_size": side,
        "patch_size": patch,
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "initializer_range": width**-0.5,  # at the default 0.02 an untrained network is next to constant
        "num_labels": outputs,
    }
    return Logits(ViTForImageClassification(ViTConfig(**options)), "pixel_values")


def bert(vocabulary: int, length: int, width: int, layers: int, outputs: int) -> nn.Module:
    """BERT (Devlin et al., 2019), int64 tokens (B, up to `length`); at width 256 and 4 layers, "BERT-mini"."""
    from transformers import BertConfig, BertForSequenceClassification

    options: dict[str, Any] = {
        "vocab_size": vocabulary,
        "max_position_embeddings": length,
        "hidden_size": width,
        "intermediate_size": 4 * width,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "initializer_range": width**-0.5,  # at the default 0.02 an untrained network is next to constant
        "num_labels": outputs,
    }
    return Logits(BertForSequenceClassification(BertConfig(**options)), "input_ids")


def mobilevit(side: int, widths: list[int], hidden: list[int], last: int, outputs: int) -> nn.Module:
    """MobileViT (Mehta and Rastegari, 2022), x (B, 3, side, side): SiLU, inverted residuals and attention.

    widths: channels of the stem and of six stages; hidden: of the tokens in the last three.
    """
    from transformers import MobileViTConfig, MobileViTForImageClassification

    options: dict[str, Any] = {
        "image_size": side,
        "neck_hidden_sizes": widths,
        "hidden_sizes": hidden,
        "num_attention_heads": 4,
        "last_hidden_size": last,
        "num_labels": outputs,
    }
    return Logits(MobileViTForImageClassification(MobileViTConfig(**options)), "pixel_values")


def llama(vocabulary: int, length: int, width: int, layers: int, outputs: int) -> nn.Module:
    """Llama (Touvron et al., 2023) as a classifier of its last token, int64 tokens (B, up to `length`): SiLU gates,
    rotary positions, RMS norms, two heads of the queries to one of the keys."""
    from transformers import LlamaConfig, LlamaForSequenceClassification

    options: dict[str, Any] = {
        "vocab_size": vocabulary,
        "max_position_embeddings": length,
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "pad_token_id": 0,
        "use_cache": False,
        "initializer_range": width**-0.5,
        "num_labels": outputs,
    }
    return Logits(LlamaForSequenceClassification(LlamaConfig(**options)), "input_ids")  # type: ignore[no-untyped-call]


def unsettle(model: nn.Module) -> None:
    """Move norms away from the identity: statistics and scales that a trained network would have."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d):
            module.running_mean = torch.randn(module.num_features) / 5
            module.running_var = torch.rand(module.num_features) + 0.5
        if isinstance(module, nn.BatchNorm1d | nn.BatchNorm2d | nn.LayerNorm):
            nn.init.normal_(module.weight, 1.0, 0.1)
            nn.init.normal_(module.bias, 0.0, 0.1)
