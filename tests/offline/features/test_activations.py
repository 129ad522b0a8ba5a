"""offline/features/activations.py: what is read in a forward pass, as onnxruntime computes it."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from demur.offline.features.activations import LONG, TEXTURE, norm, read_activations, texture
from demur.service.inference.onnx_runtime import onnxruntime

RELATIVE = 1e-5


class Read(nn.Module):
    """The texture of images, and the pooled input of a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.ReLU(), nn.Conv2d(3, 2, 3))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat(read_activations(self.model, (TEXTURE, "1"), x), dim=1)


def pictures(size: int) -> Tensor:
    """White, black but for a corner, and noise, standardised."""
    x = torch.full((3, 3, size, size), 2.2)
    x[1] = -1.8
    x[1, :, : size // 8, : size // 8] = 2.2
    x[2] = torch.randn(3, size, size, generator=torch.Generator().manual_seed(0))
    return x


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("size", [8, 32, 224, 225])
def test_sums_of_many_equal_numbers_are_as_precise_as_others(size: int, tmp_path: Path) -> None:
    x, file = pictures(size), tmp_path / "read.onnx"
    program = torch.onnx.export(Read().eval(), (x,), dynamo=True)
    assert program is not None
    program.save(file)
    (found,) = onnxruntime.InferenceSession(file).run(None, {"x": x.numpy()})
    with torch.no_grad():
        expected = Read().double()(x.double()).numpy()
    np.testing.assert_allclose(found, expected, rtol=RELATIVE, atol=RELATIVE)


@pytest.mark.parametrize("count", [LONG, LONG + 1, LONG + 512, 3 * LONG - 1])
def test_a_long_norm_is_the_norm(count: int) -> None:
    x = torch.randn(2, 1, 1, count, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(texture(x)[:, :1], norm(x.flatten(1)), rtol=1e-14, atol=0)
    torch.testing.assert_close(norm(x.reshape(2, 1, -1, 1), (2, 3)).flatten(), texture(x)[:, 0], rtol=1e-14, atol=0)
