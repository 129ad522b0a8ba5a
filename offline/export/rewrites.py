"""Functions rewritten before they are differentiated, so that their backward pass is one that ONNX can hold.

`demur.offline.export.decompositions` rewrites operators of a backward pass that is already there. Some of those have
no rewriting of their own (grid_sampler_2d_backward), or depend on the data (that of a product asks for zeros): the
function itself is then replaced, while tracing, by others that compute the same.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._decomp.decompositions import grid_sampler_2d
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode


class Rewrites(TorchFunctionMode):
    """While it is active, the functions of `REPLACEMENTS` are replaced."""

    def __torch_function__(
        self, function: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        named, replacement = dict(kwargs or {}), REPLACEMENTS.get(function, function)
        if replacement is not function and "input" in named:  # torch's name for the first argument
            args = (named.pop("input"), *args)
        return replacement(*args, **named)


def rrelu(
    x: Tensor, lower: float = 1 / 8, upper: float = 1 / 3, training: bool = False, inplace: bool = False
) -> Tensor:
    """Outside of training the slope is the mean of its range."""
    if training:
        raise ValueError("rrelu: found training=True, expected training=self.training: random slopes cannot be served")
    return F.leaky_relu(x, (lower + upper) / 2, inplace)


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """out[o] = input1^T weight[o] input2 + bias[o]."""
    outer = input1 @ weight.transpose(0, 1).flatten(1)
    outer = outer.reshape(*outer.shape[:-1], weight.shape[0], weight.shape[2])
    product = (outer * input2.unsqueeze(-2)).sum(-1)
    return product if bias is None else product + bias


def checked(index: Tensor, size: int) -> Tensor:
    """Whole numbers that choose among `size` entries, negative ones so that ONNX refuses them as torch does: it would
    count them from the end, which is what torch does for x[index] alone."""
    return torch.where(index < 0, index - size, index)


def known(index: Tensor, size: int) -> Tensor:
    """The same numbers, looked up among 0, ..., size - 1: a graph refuses any other."""
    numbers = torch.arange(size, device=index.device)
    found: Tensor = F.embedding(checked(index, size), numbers.unsqueeze(-1)).squeeze(-1)
    return found


def embedding(
    x: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None, *others: Any, **named: Any
) -> Tensor:
    """Rows of `weight`; a token below 0 is refused."""
    if max_norm is not None:
        raise ValueError(
            "embedding: found max_norm, which changes the weights in each forward pass; call the layer once for every "
            "row, and set its max_norm to None"
        )
    return F.embedding(checked(x, weight.shape[0]), weight, padding_idx, None, *others, **named)


def bare_embedding(weight: Tensor, indices: Tensor, *others: Any, **named: Any) -> Tensor:
    """As `embedding`, in the order of torch.embedding's arguments."""
    return torch.embedding(weight, checked(indices, weight.shape[0]), *others, **named)


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Rows of the unit matrix; torch refuses a class that has none, ONNX only what is looked up."""
    if num_classes < 0:
        raise ValueError("one_hot: found no num_classes, expected one: a batch does not say how many classes there are")
    classes = torch.arange(num_classes, device=tensor.device)
    return (known(tensor, num_classes).unsqueeze(-1) == classes).to(torch.int64)


def index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    """Entries along an axis; an index below 0 is refused."""
    return torch.index_select(x, dim, checked(index, x.shape[dim]))


def gather(x: Tensor, dim: int, index: Tensor, **named: Any) -> Tensor:
    """Values along an axis; onnxruntime does not say which index GatherElements lacks, Gather does."""
    return torch.gather(x, dim, known(index, x.shape[dim]), **named)


def writing_at(function: Any) -> Callable[..., Tensor]:
    """A function that writes at places along an axis; a place below 0 is refused."""

    def replaced(x: Tensor, dim: int, index: Tensor, *others: Any, **named: Any) -> Tensor:
        written: Tensor = function(x, dim, checked(index, x.shape[dim]), *others, **named)
        return written

    return replaced


def embedding_bag(
    x: Tensor,
    weight: Tensor,
    *,
    mode: str = "mean",
    per_sample_weights: Tensor | None = None,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    **others: Any,  # noqa: ARG001
) -> Tensor:
    """Bags of equal size, x (B, n): the embeddings' sum, mean or maximum, tokens that are padding left out."""
    if x.dim() != 2 or max_norm is not None:
        raise ValueError(
            "embedding_bag: found bags given by offsets, or a max_norm, expected one row of tokens an example (B, n)"
        )
    vectors = embedding(x, weight, padding_idx)
    kept = torch.ones_like(x, dtype=torch.bool) if padding_idx is None else x != padding_idx
    if mode == "max":
        largest = vectors.masked_fill(~kept.unsqueeze(-1), -torch.inf).amax(1)
        return torch.where(kept.any(1, keepdim=True), largest, 0.0)
    share = kept.to(vectors.dtype) if per_sample_weights is None else kept * per_sample_weights
    total = (vectors * share.unsqueeze(-1)).sum(1)
    return total if mode == "sum" else total / kept.sum(1, keepdim=True).clamp(min=1)


def cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: Any = None) -> Tensor:  # noqa: ARG001
    """Norms of all differences; a distance of zero has derivative zero."""
    distances: Tensor = torch.linalg.vector_norm(x1.unsqueeze(-2) - x2.unsqueeze(-3), p, -1)
    return distances


def grid_sample(
    x: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros", align_corners: bool | None = None
) -> Tensor:
    """PyTorch's own decomposition, which can be differentiated; for volumes there is none."""
    if x.dim() != 4:
        raise ValueError("grid_sample: found a volume, expected images (B, C, H, W)")
    modes, paddings = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")
    choices = modes.index(mode), paddings.index(padding_mode), bool(align_corners)
    sampled: Tensor = grid_sampler_2d(x, grid, *choices)
    return sampled


def median(x: Tensor, dim: int, keepdim: bool = False) -> Any:
    """The lower of the two in the middle."""
    values, places = (part.narrow(dim, (int(x.shape[dim]) - 1) // 2, 1) for part in x.sort(dim))
    pair = (values, places) if keepdim else (values.squeeze(dim), places.squeeze(dim))
    return torch.return_types.median(pair)


def prod(x: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Tensor:
    """Halves of the axis multiplied with each other until one entry is left."""
    x = x if dtype is None else x.to(dtype)
    if dim is None:
        x, dim = x.flatten(), 0
    while (length := int(x.shape[dim])) > 1:
        half = length // 2
        product = x.narrow(dim, 0, half) * x.narrow(dim, half, half)
        x = torch.cat([product, x.narrow(dim, 2 * half, 1)], dim) if length % 2 else product
    return x if keepdim else x.squeeze(dim)


def unfold(x: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows by index: the backward pass of the view has indices of 32 bits, which ONNX refuses."""
    at = torch.arange(int(x.shape[dimension]), device=x.device).unfold(0, size, step)
    windows = x.movedim(dimension, -1)[..., at]
    return windows.movedim(-2, dimension % x.dim())


def adaptive_avg_pool2d(x: Tensor, output_size: Any) -> Tensor:
    """The mean, where one value is left: torch restores the strides of channels that come last, which no graph has."""
    if output_size in (1, (1, 1), [1, 1]):
        return x.mean((-2, -1), keepdim=True)
    return F.adaptive_avg_pool2d(x, output_size)


def adaptive_avg_pool1d(x: Tensor, output_size: Any) -> Tensor:
    """As `adaptive_avg_pool2d`."""
    if output_size in (1, (1,), [1]):
        return x.mean(-1, keepdim=True)
    return F.adaptive_avg_pool1d(x, output_size)


def magnitude(x: Tensor) -> Tensor:
    """|x|; of complex numbers, by their two parts."""
    if not x.is_complex():
        return torch.abs(x)
    size: Tensor = torch.linalg.vector_norm(torch.view_as_real(x), dim=-1)
    return size


def atan2(x: Tensor, other: Tensor) -> Tensor:
    """The angle of (other, x) in [-pi, pi], by the arc tangent of the smaller over the larger; a zero's sign counts."""
    steep = x.abs() > other.abs()
    over, under = torch.where(steep, other, x), torch.where(steep, x, other)
    angle = torch.atan(over / torch.where(under == 0, torch.ones_like(under), under))
    below, left = _is_negative(x), _is_negative(other)
    half = torch.where(below, -torch.pi / 2, torch.pi / 2)
    return torch.where(steep, half - angle, angle + torch.where(left, 2 * half, 0.0))


def _is_negative(x: Tensor) -> Tensor:
    """Whether it is below zero, or the zero that divides 1 into -inf."""
    return (x < 0) | ((x == 0) & (1 / x.detach() < 0))


def expm1(x: Tensor) -> Tensor:
    """e^x - 1 = tanh(x / 2) (e^x + 1), of whose digits small x lose none."""
    return torch.tanh(x / 2) * (torch.exp(x) + 1)


def logaddexp(x: Tensor, other: Tensor) -> Tensor:
    """log(e^x + e^other) from the larger one, which exponentiates nothing that is large."""
    apart = torch.where(x == other, torch.zeros_like(x), x - other)  # two that are -inf are equal
    return torch.maximum(x, other) + F.softplus(-torch.abs(apart))


def remainder(x: Any, other: Any) -> Any:
    """x - floor(x / other) other, by the remainder of a truncated quotient, which is exact."""
    if not (isinstance(x, Tensor) and x.is_floating_point()):
        return torch.remainder(x, other)
    left = torch.fmod(x, other)
    return torch.where(_is_rounded_up(left, other), left + other, left)


def floor_divide(x: Any, other: Any) -> Any:
    """floor(x / other): of floating-point numbers from the exact remainder, as torch has it."""
    if not (isinstance(x, Tensor) and x.is_floating_point()):
        return torch.floor_divide(x, other)
    left = torch.fmod(x, other)
    return torch.round((x - left) / other) - _is_rounded_up(left, other).to(x.dtype)


def _is_rounded_up(left: Tensor, other: Any) -> Tensor:
    """Where a quotient that is truncated is more than its floor."""
    return (left != 0) & ((left < 0) != (torch.as_tensor(other) < 0))


WRITING = [
    getattr(owner, name + ending)
    for name in ("scatter", "scatter_add", "scatter_reduce", "index_add", "index_copy")
    for owner, ending in ((torch, ""), (Tensor, ""), (Tensor, "_"))
]
REPLACEMENTS: dict[Any, Callable[..., Any]] = {
    **{function: writing_at(function) for function in WRITING},
    F.rrelu: rrelu,
    F.adaptive_avg_pool1d: adaptive_avg_pool1d,
    F.adaptive_avg_pool2d: adaptive_avg_pool2d,
    F.bilinear: bilinear,
    torch.bilinear: bilinear,
    F.embedding: embedding,
    torch.embedding: bare_embedding,
    F.embedding_bag: embedding_bag,
    F.one_hot: one_hot,
    torch.index_select: index_select,
    Tensor.index_select: index_select,
    torch.gather: gather,
    Tensor.gather: gather,
    torch.cdist: cdist,
    F.grid_sample: grid_sample,
    torch.median: median,
    Tensor.median: median,
    torch.prod: prod,
    Tensor.prod: prod,
    Tensor.unfold: unfold,
    torch.abs: magnitude,
    Tensor.abs: magnitude,
    **dict.fromkeys((torch.atan2, torch.arctan2, Tensor.atan2, Tensor.arctan2), atan2),
    **dict.fromkeys((torch.remainder, Tensor.remainder, Tensor.__mod__), remainder),
    **dict.fromkeys((torch.floor_divide, Tensor.floor_divide, Tensor.__floordiv__), floor_divide),
    **dict.fromkeys((torch.expm1, Tensor.expm1, torch.special.expm1), expm1),
    torch.logaddexp: logaddexp,
    Tensor.logaddexp: logaddexp,
}
