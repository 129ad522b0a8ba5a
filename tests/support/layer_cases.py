"""Every layer of torch.nn, and functions that networks call directly, in a network of its own or beside others."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

OUTPUTS = 2
SEED = 0


@dataclass(frozen=True)
class Case:
    """A layer and one input (without the batch) that it takes; `shape` has at least one axis.

    call: how the layer is called, for one that takes or gives anything but one tensor.
    refusal: a pattern of the refusal, for a layer that cannot be served.
    """

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    call: Callable[[Any, Tensor], Tensor] = field(default=lambda layer, x: layer(x))
    refusal: str | None = None


class Under(nn.Module):
    """A Linear, the layer, and a Linear on everything that it gives: a derivative of the first crosses the layer."""

    def __init__(self, case: Case, outputs: int) -> None:
        super().__init__()
        self.call = case.call
        self.stem = nn.Linear(case.shape[-1], case.shape[-1])
        self.layer = case.build()
        with torch.no_grad():
            width = self.features(torch.zeros(2, *case.shape)).shape[1]
        self.head = nn.Linear(width, outputs)

    def features(self, x: Tensor) -> Tensor:
        return self.call(self.layer, self.stem(x)).flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.features(x))
        return logits


class Beside(nn.Module):
    """A Linear, the layers of several cases on what it gives, and a Linear on everything that these give.

    Each layer has outputs of its own: the weights of the last Linear between it and the others' outputs are zero.
    """

    def __init__(self, cases: Mapping[str, Case], outputs: int) -> None:
        super().__init__()
        (shape,) = {case.shape for case in cases.values()}
        self.calls = [case.call for case in cases.values()]
        self.stem = nn.Linear(shape[-1], shape[-1])
        self.layers = nn.ModuleDict({name: case.build() for name, case in cases.items()})
        self.eval()
        with torch.no_grad():
            self.widths = [given.shape[1] for given in self.features(torch.zeros(2, *shape))]
            heads = [nn.Linear(width, outputs) for width in self.widths]
            self.head = nn.Linear(sum(self.widths), outputs * len(cases))
            self.head.weight.copy_(torch.block_diag(*(head.weight for head in heads)))

    def own_weights(self) -> list[Tensor]:
        """For each layer, where the weights between it and its outputs stand in the head's matrix, in order."""
        places = torch.arange(self.head.weight.numel()).reshape(self.head.weight.shape)
        rows = places.chunk(len(self.widths))
        return [row.split(self.widths, 1)[at].flatten() for at, row in enumerate(rows)]

    def features(self, x: Tensor) -> list[Tensor]:
        hidden = self.stem(x)
        return [call(layer, hidden).flatten(1) for call, layer in zip(self.calls, self.layers.values(), strict=True)]

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.cat(self.features(x), 1))
        return logits


class Functional(nn.Module):
    """A function in place of a layer."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def network(case: Case) -> tuple[nn.Module, Tensor]:
    """The case's network in eval mode and inputs (3, *shape); the global generator is left as it was."""
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        return Under(case, OUTPUTS).eval(), torch.randn(3, *case.shape)


def networks_beside(names: Iterable[str]) -> tuple[Beside, Tensor]:
    """As `network`, with the layers of cases that take the same shape beside each other."""
    cases = {name: CASES[name] for name in names}
    with torch.random.fork_rng():
        torch.manual_seed(SEED)
        model = Beside(cases, OUTPUTS)
        return model, torch.randn(3, *next(iter(cases.values())).shape)


def side_by_side(names: Iterable[str], most: int) -> list[tuple[str, ...]]:
    """The names in groups of at most `most` cases that take the same shape."""
    shapes: dict[tuple[int, ...], list[str]] = {}
    for name in names:
        shapes.setdefault(CASES[name].shape, []).append(name)
    groups = []
    for alike in shapes.values():
        each = -(-len(alike) // -(-len(alike) // most))
        groups += [tuple(alike[at : at + each]) for at in range(0, len(alike), each)]
    return groups


ROW, LINE, IMAGE, VOLUME = (5,), (4, 6), (4, 6, 6), (2, 4, 4, 4)


def _simple(names: str, shape: tuple[int, ...], *args: Any, **kwargs: Any) -> dict[str, Case]:
    """The classes called `names`, all with the same arguments."""
    return {name: Case(partial(getattr(nn, name), *args, **kwargs), shape) for name in names.split()}


def _function(function: Callable[[Tensor], Tensor], shape: tuple[int, ...], refusal: str | None = None) -> Case:
    return Case(lambda: Functional(function), shape, refusal=refusal)


def _first(layer: Any, x: Tensor) -> Tensor:
    """The first of what a layer gives."""
    result: Tensor = layer(x)[0]
    return result


def _twice(layer: Any, x: Tensor) -> Tensor:
    result: Tensor = layer(x, x.flip(-1))
    return result


def _unpooled(dimensions: int) -> Callable[[Any, Tensor], Tensor]:
    pool = (F.max_pool1d, F.max_pool2d, F.max_pool3d)[dimensions - 1]

    def call(layer: Any, x: Tensor) -> Tensor:
        result: Tensor = layer(*pool(x, 2, return_indices=True))
        return result

    return call


LAYERS: dict[str, Case] = {
    # activations
    **_simple(
        "CELU ELU GELU Hardshrink Hardsigmoid Hardswish Hardtanh LeakyReLU LogSigmoid Mish PReLU RReLU ReLU ReLU6 "
        "SELU SiLU Sigmoid Softplus Softshrink Softsign Tanh Tanhshrink Identity",
        LINE,
    ),
    **_simple("GLU", LINE),
    **_simple("LogSoftmax Softmax Softmin", LINE, dim=-1),
    **_simple("Softmax2d", IMAGE),
    **_simple("Threshold", LINE, 0.1, 0.5),
    # dropout: nothing in eval mode
    **_simple("AlphaDropout Dropout FeatureAlphaDropout", LINE),
    **_simple("Dropout1d", LINE),
    **_simple("Dropout2d", IMAGE),
    **_simple("Dropout3d", VOLUME),
    # normalisation
    **_simple("BatchNorm1d InstanceNorm1d", LINE, 4),
    **_simple("BatchNorm2d InstanceNorm2d SyncBatchNorm", IMAGE, 4),
    **_simple("BatchNorm3d InstanceNorm3d", VOLUME, 2),
    **_simple("GroupNorm", IMAGE, 2, 4),
    **_simple("LayerNorm RMSNorm", LINE, 6),
    **_simple("LocalResponseNorm", IMAGE, 3),
    "CrossMapLRN2d": Case(lambda: nn.CrossMapLRN2d(3), IMAGE, refusal=r"remedy: .*nn\.LocalResponseNorm"),
    # pooling
    **_simple("AvgPool1d MaxPool1d", LINE, 2),
    **_simple("LPPool1d", LINE, 2, 2),
    **_simple("AvgPool2d MaxPool2d", IMAGE, 2),
    **_simple("LPPool2d", IMAGE, 2, 2),
    **_simple("AvgPool3d MaxPool3d", VOLUME, 2),
    **_simple("LPPool3d", VOLUME, 2, 2),
    **_simple("AdaptiveAvgPool1d AdaptiveMaxPool1d", LINE, 4),
    **_simple("AdaptiveAvgPool2d AdaptiveMaxPool2d", IMAGE, 4),
    **_simple("AdaptiveAvgPool3d AdaptiveMaxPool3d", VOLUME, 3),
    "FractionalMaxPool2d": Case(
        lambda: nn.FractionalMaxPool2d(2, 3), IMAGE, refusal=r"remedy: .*nn\.AdaptiveMaxPool2d"
    ),
    "FractionalMaxPool3d": Case(
        lambda: nn.FractionalMaxPool3d(2, 2),
        VOLUME,
        refusal=r"the second time|nn\.AdaptiveMaxPool3d",
    ),
    **{
        f"MaxUnpool{n}d": Case(partial(getattr(nn, f"MaxUnpool{n}d"), 2), shape, _unpooled(n))
        for n, shape in ((1, LINE), (2, IMAGE), (3, VOLUME))
    },
    # padding
    **_simple("CircularPad1d ReflectionPad1d ReplicationPad1d ZeroPad1d", LINE, 2),
    **_simple("CircularPad2d ReflectionPad2d ReplicationPad2d ZeroPad2d", IMAGE, 2),
    **_simple("CircularPad3d ReflectionPad3d ReplicationPad3d ZeroPad3d", VOLUME, 1),
    **_simple("ConstantPad1d", LINE, 2, 0.5),
    **_simple("ConstantPad2d", IMAGE, 2, 0.5),
    **_simple("ConstantPad3d", VOLUME, 1, 0.5),
    # shapes and resolution
    **_simple("Flatten", IMAGE),
    **_simple("Unflatten", LINE, 1, (2, 2)),
    **_simple("Fold", (8, 9), 4, 2),
    **_simple("Unfold", IMAGE, 2),
    **_simple("ChannelShuffle", IMAGE, 2),
    **_simple("PixelShuffle PixelUnshuffle", IMAGE, 2),
    **_simple("Upsample UpsamplingBilinear2d UpsamplingNearest2d", IMAGE, scale_factor=2),
    # with weights
    **_simple("Linear", LINE, 6, 3),
    **_simple("Conv1d ConvTranspose1d", LINE, 4, 3, 3),
    **_simple("Conv2d ConvTranspose2d", IMAGE, 4, 3, 3),
    **_simple("Conv3d ConvTranspose3d", VOLUME, 2, 2, 2),
    "Bilinear": Case(lambda: nn.Bilinear(6, 6, 3), LINE, _twice),
    "CosineSimilarity": Case(nn.CosineSimilarity, LINE, _twice),
    "PairwiseDistance": Case(nn.PairwiseDistance, LINE, _twice),
    "Embedding": Case(lambda: nn.Embedding(7, 3), LINE, lambda layer, x: layer(x.abs().long() % 7) * x.unsqueeze(-1)),
    "EmbeddingBag": Case(
        lambda: nn.EmbeddingBag(7, 6), LINE, lambda layer, x: layer(x[:, 0].abs().long() % 7) * x[:, 1]
    ),
    "AdaptiveLogSoftmaxWithLoss": Case(
        lambda: nn.AdaptiveLogSoftmaxWithLoss(5, 8, [3]), ROW, lambda layer, x: layer.log_prob(x)
    ),
    # recurrent
    **{name: Case(partial(getattr(nn, name), 6, 3, batch_first=True), LINE, _first) for name in ("RNN", "GRU", "LSTM")},
    **_simple("RNNCell GRUCell", ROW, 5, 3),
    "LSTMCell": Case(lambda: nn.LSTMCell(5, 3), ROW, _first),
    # attention
    "MultiheadAttention": Case(
        lambda: nn.MultiheadAttention(6, 2, batch_first=True), LINE, lambda layer, x: layer(x, x, x)[0]
    ),
    **_simple("TransformerEncoderLayer", LINE, 6, 2, 8, batch_first=True),
    "TransformerEncoder": Case(
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(6, 2, 8, batch_first=True), 1), LINE
    ),
    "TransformerDecoderLayer": Case(lambda: nn.TransformerDecoderLayer(6, 2, 8, batch_first=True), LINE, _twice),
    "TransformerDecoder": Case(
        lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(6, 2, 8, batch_first=True), 1), LINE, _twice
    ),
    "Transformer": Case(lambda: nn.Transformer(6, 2, 1, 1, 8, batch_first=True), LINE, _twice),
}

FUNCTIONS: dict[str, Case] = {
    "std": _function(lambda x: x.std(-1), LINE),
    "std-of-all": _function(lambda x: x.std((1, 2), correction=0, keepdim=True), LINE),
    "var": _function(lambda x: x.var(1), LINE),
    "prod": _function(lambda x: x.prod(-1), LINE),
    "cumsum": _function(lambda x: x.cumsum(-1), LINE),
    "logsumexp": _function(lambda x: x.logsumexp(-1), LINE),
    "norm": _function(lambda x: torch.linalg.vector_norm(x, dim=-1), LINE),
    "normalize": _function(lambda x: F.normalize(x, dim=-1), LINE),
    "median": _function(lambda x: x.median(-1).values, LINE),
    "sort": _function(lambda x: x.sort(-1).values, ROW),
    "topk": _function(lambda x: x.topk(2, -1).values, LINE),
    "amax": _function(lambda x: x.amax(-1), LINE),
    "max": _function(lambda x: x.max(-1).values, LINE),
    "scaled_dot_product_attention": _function(lambda x: F.scaled_dot_product_attention(x, x, x), LINE),
    "scaled_dot_product_attention-causal": _function(
        lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True), LINE
    ),
    "scaled_dot_product_attention-heads": _function(
        lambda x: F.scaled_dot_product_attention(
            x, x, x, attn_mask=x.mean(1, keepdim=True).mean(-1, keepdim=True) > -1
        ),
        (2, 4, 6),
    ),
    "scaled_dot_product_attention-grouped": _function(
        lambda x: F.scaled_dot_product_attention(x, x[:, :1], x[:, :1], enable_gqa=True), (2, 4, 6)
    ),
    "fft": _function(lambda x: torch.fft.fft(x).abs(), LINE),
    "rfft": _function(lambda x: torch.fft.rfft(x).abs(), LINE, "complex numbers"),
    "rfft2": _function(lambda x: torch.fft.rfft2(x).abs(), IMAGE, "complex numbers"),
    "einsum": _function(lambda x: torch.einsum("bij,bkj->bik", x, x), LINE),
    "bmm": _function(lambda x: torch.bmm(x, x.transpose(1, 2)), LINE),
    "layer_norm": _function(lambda x: F.layer_norm(x, (6,)), LINE),
    "group_norm": _function(lambda x: F.group_norm(x, 2), IMAGE),
    "rms_norm": _function(lambda x: F.rms_norm(x, (6,)), LINE),
    "interpolate-linear": _function(lambda x: F.interpolate(x, scale_factor=2, mode="linear"), LINE),
    "interpolate-nearest": _function(lambda x: F.interpolate(x, size=(9, 4)), IMAGE),
    "interpolate-nearest-exact": _function(lambda x: F.interpolate(x, size=(9, 4), mode="nearest-exact"), IMAGE),
    "interpolate-bilinear": _function(lambda x: F.interpolate(x, size=(9, 4), mode="bilinear"), IMAGE),
    "interpolate-bilinear-corners": _function(
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True), IMAGE
    ),
    "interpolate-bicubic": _function(lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"), IMAGE),
    "interpolate-area": _function(lambda x: F.interpolate(x, size=(4, 3), mode="area"), IMAGE),
    "interpolate-trilinear": _function(lambda x: F.interpolate(x, scale_factor=2, mode="trilinear"), VOLUME),
    "grid_sample": _function(
        lambda x: F.grid_sample(x, x[:, :2].permute(0, 2, 3, 1).tanh(), align_corners=False), IMAGE
    ),
    "glu": _function(lambda x: F.glu(x, 1), LINE),
    "gelu-tanh": _function(lambda x: F.gelu(x, approximate="tanh"), LINE),
    "gumbel-free-softmax": _function(lambda x: F.softmax(x, 1), IMAGE),
    "log_softmax": _function(lambda x: F.log_softmax(x, 1), IMAGE),
    "gather": _function(lambda x: x.gather(-1, x.argsort(-1)), LINE),
    "index": _function(lambda x: x[:, torch.tensor([2, 0, 2])], LINE),
    "index-none": _function(lambda x: x[:, ::2, None, 1:], LINE),
    "index_select": _function(lambda x: x.index_select(1, torch.tensor([3, 1])), LINE),
    "index-examples": _function(lambda x: x[torch.arange(x.shape[0]), x[:, :, 0].argmax(1)], LINE),
    "masked_fill": _function(lambda x: x.masked_fill(x < 0, -2.0) * x, LINE),
    "where": _function(lambda x: torch.where(x > 0, x, x.exp()), LINE),
    "clamp": _function(lambda x: x.clamp(-0.5, 0.5), LINE),
    "roll": _function(lambda x: x.roll((1, 2), (2, 3)), IMAGE),
    "flip": _function(lambda x: x.flip(-1), LINE),
    "unfold": _function(lambda x: F.unfold(x, 3, padding=1), IMAGE),
    "tensor-unfold": _function(lambda x: x.unfold(-1, 3, 2), LINE),
    "fold": _function(lambda x: F.fold(x, 4, 2), (8, 9)),
    "pixel_shuffle": _function(lambda x: F.pixel_shuffle(x, 2), IMAGE),
    "pad-reflect": _function(lambda x: F.pad(x, (1, 2, 2, 1), mode="reflect"), IMAGE),
    "pad-negative": _function(lambda x: F.pad(x, (-1, 1)), LINE),
    "chunk": _function(lambda x: x.chunk(2, 1)[0] * x.chunk(2, 1)[1], LINE),
    "stack": _function(lambda x: torch.stack([x, x.exp()], 2), LINE),
    "repeat_interleave": _function(lambda x: x.repeat_interleave(2, 1), LINE),
    "expand": _function(lambda x: x.unsqueeze(1).expand(-1, 3, -1, -1) * x.sum(2)[:, None, :, None], LINE),
    "tril": _function(lambda x: x.tril(), LINE),
    "cdist": _function(lambda x: torch.cdist(x, x.flip(1)), LINE),
    "matrix_power": _function(lambda x: x.pow(3) + x.abs().pow(0.5), LINE),
    "erf": _function(torch.erf, LINE),
    "atan2": _function(lambda x: torch.atan2(x, 1 + x**2), LINE),
    "log1p": _function(lambda x: torch.log1p(x**2) + torch.expm1(x), LINE),
    "nan_to_num": _function(lambda x: (x**2 + 0.1).sqrt().nan_to_num(), LINE),
    "max_pool2d-overlapping": _function(lambda x: F.max_pool2d(x, 3, 2, 1), IMAGE),
    "max_pool2d-dilated": _function(lambda x: F.max_pool2d(x, 2, 1, dilation=2), IMAGE),
    "avg_pool2d-ceil": _function(lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True, count_include_pad=False), IMAGE),
    "adaptive_avg_pool2d-one": _function(lambda x: F.adaptive_avg_pool2d(x, 1), IMAGE),
    "adaptive_avg_pool1d-channels-last": _function(
        lambda x: F.adaptive_avg_pool1d(x.flatten(2).transpose(1, 2).exp(), 1), IMAGE
    ),
    "adaptive_avg_pool2d-channels-last": _function(
        lambda x: F.adaptive_avg_pool2d(x.permute(0, 3, 1, 2).exp(), 1), IMAGE
    ),
    "adaptive_max_pool2d-one": _function(lambda x: F.adaptive_max_pool2d(x, 1), IMAGE),
    "det": _function(
        lambda x: torch.linalg.det(x @ x.transpose(1, 2)).unsqueeze(1),
        (3, 6),
        r"backward pass .* weights of layers that",
    ),
    "if": _function(lambda x: 2 * x if x.isfinite().all() else x, LINE, r"torch\.where, or a mask"),
}

CASES = {**LAYERS, **FUNCTIONS}
