"""A fit of a moment, for tests that run the command."""

import torch

from demur.offline import FitConfig

config = FitConfig(name="tiny", subnetwork_size=5, selection="random", prior_precision=3.0, device="cpu", seed=1)


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.ReLU(), torch.nn.Linear(6, 2))


def data(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    inputs = torch.randn(40, 4, generator=torch.Generator().manual_seed(seed))
    return inputs, (inputs[:, 0] > 0).long()


def train_data() -> list[tuple[torch.Tensor, torch.Tensor]]:
    return [data(0), data(1)]


def calibration_data() -> tuple[torch.Tensor, torch.Tensor]:
    return data(2)
