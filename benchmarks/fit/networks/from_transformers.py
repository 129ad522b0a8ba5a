"""The zoo's networks of the transformers library, from their configurations, with random weights."""

from typing import Any

from torch import Tensor, nn

IMAGES, TOKENS = "ForImageClassification", "ForSequenceClassification"


class Logits(nn.Module):
    """A classifier of the library as a function from one tensor to logits (B, outputs)."""

    def __init__(self, classifier: Any, keyword: str) -> None:
        super().__init__()
        self.classifier, self.keyword = classifier, keyword

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(**{self.keyword: x}).logits
        return logits


def images(family: str, outputs: int, **options: Any) -> nn.Module:
    """The classifier of images (B, 3, H, W) called `family`, such as "ViT"."""
    return Logits(_made(family, IMAGES, outputs, options), "pixel_values")


def tokens(family: str, outputs: int, **options: Any) -> nn.Module:
    """The classifier of int64 tokens (B, length) called `family`, such as "Bert"."""
    return Logits(_made(family, TOKENS, outputs, options), "input_ids")


def attention(width: int, layers: int) -> dict[str, Any]:
    """Sizes of a transformer, with four heads."""
    return {"hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": 4, **scaled(width)}


def scaled(width: int) -> dict[str, float]:
    """With the default of 0.02, an untrained network is next to constant."""
    return {"initializer_range": width**-0.5}


def _made(family: str, ending: str, outputs: int, options: dict[str, Any]) -> Any:
    import transformers

    configuration = getattr(transformers, f"{family}Config")(num_labels=outputs, **options)
    return getattr(transformers, f"{family}{ending}")(configuration)
