"""What is kept of a choice on disk gives the same choice again."""

import json

import pytest
import torch

from demur.offline.selection.subnetwork import Subnetwork

INDICES = torch.tensor([1, 4, 9])


@pytest.mark.parametrize(
    "chosen",
    [
        Subnetwork(INDICES, 7, "because", "wasserstein-swag", {"snapshots": 7, "seed": 3}, ("head", "body")),
        Subnetwork(INDICES, strategy="random"),
    ],
    ids=["all", "little"],
)
def test_a_choice_survives_json(chosen: Subnetwork) -> None:
    values = json.loads(json.dumps(chosen.to_json()))
    assert "indices" not in values
    assert Subnetwork.from_json(INDICES, values) == chosen
