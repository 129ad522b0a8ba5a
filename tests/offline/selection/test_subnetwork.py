"""What is kept of a choice on disk gives the same choice again."""

import json

import pytest
import torch

from offline.selection.subnetwork import CandidateScore, Subnetwork

INDICES = torch.tensor([1, 4, 9])
SCORE = CandidateScore("gradient", 3, 2, 1.5, 0.1, 0.0, -0.2, -0.4, 0.9, chosen=True)


@pytest.mark.parametrize(
    "chosen",
    [
        Subnetwork(INDICES, 7, "because", "novelty", {"shifts": ["noise"], "examples": 3}, ("head", "body")),
        Subnetwork(INDICES, strategy="random", candidates=(SCORE, SCORE)),
        Subnetwork(INDICES, strategy="magnitude"),
    ],
    ids=["all", "compared", "little"],
)
def test_a_choice_survives_json(chosen: Subnetwork) -> None:
    values = json.loads(json.dumps(chosen.to_json()))
    assert "indices" not in values
    assert Subnetwork.from_json(INDICES, values) == chosen
