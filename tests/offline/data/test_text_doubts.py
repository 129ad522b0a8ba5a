"""What a fit warns of where texts are served, and of what it does not."""

from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from torch import Tensor, nn

from demur.offline.data.given import given_data
from demur.offline.data.text_doubts import text_doubts
from demur.offline.data.texts import TextEncoder
from demur.offline.network.inputs import input_form
from demur.offline.network.outputs import PLAIN
from tests.support.bundles import WORDS, tokenizer_json

TEXTS = ["the film was good good good", "bad", "the film"]


class Network(nn.Module):
    """Means over the words of a text; ways to go wrong."""

    def __init__(self, rows: int = len(WORDS), filled_too: bool = False, last: bool = False) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words, self.head = nn.Embedding(rows, 4), nn.Linear(4, 2)
        self.filled_too, self.last = filled_too, last

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        words = self.words(input_ids)
        if self.last:
            return self.head(words[:, -1])
        mask = torch.ones_like(attention_mask) if self.filled_too else attention_mask
        weights = mask.unsqueeze(-1) / mask.sum(1)[:, None, None]
        return self.head((words * weights).sum(1))


class Fixed(Network):
    """Takes one length alone."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return super().forward(input_ids, attention_mask.reshape(-1, 7))


class Alone(nn.Module):
    """Takes the tokens alone, and leaves out what fills."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Network()

    def forward(self, ids: Tensor) -> Tensor:
        return self.inner(ids, (ids != 0).long())


def doubts(network: nn.Module, **changes: Any) -> list[str]:
    tokenizer = Tokenizer.from_str(tokenizer_json(truncation=None, **changes).decode())
    tokenizer.enable_padding(pad_id=0, pad_token="[PAD]", length=None)
    encoder = TextEncoder.of(tokenizer, TEXTS, network)
    data = given_data((TEXTS, [0, 1, 1]), "data", encoder=encoder)
    inputs = data.first(torch.device("cpu"))[2]
    return text_doubts(network, PLAIN, input_form(network, inputs), encoder, data.texts)


@pytest.mark.parametrize("network", [Network(), Network(rows=40), Alone(), Fixed(filled_too=True)])
def test_nothing_to_say(network: nn.Module) -> None:
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    network.train()
    assert doubts(network) == []
    assert network.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in network.state_dict().items())


@pytest.mark.parametrize("network", [Network(filled_too=True), Network(last=True)])
def test_answers_that_depend_on_the_filling(network: nn.Module) -> None:
    (found,) = doubts(network)
    assert "depends on how far a text is filled: of 7 tokens" in found


def test_a_tokenizer_with_more_tokens_than_the_network_knows() -> None:
    added = {"content": "[NEW]", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    token = [{"id": len(WORDS), "special": True, **added}]
    assert doubts(Network(rows=len(WORDS) + 1), added_tokens=token) == []
    (found,) = doubts(Network(), added_tokens=token)
    assert f"tokens up to number {len(WORDS)}, for which the network fails" in found
