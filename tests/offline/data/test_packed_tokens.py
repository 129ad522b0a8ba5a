"""Tokens packed beside their mask: they alone change, and only where there are any."""

import pytest
import torch
from torch import Tensor

from demur.offline.data.changes import changed, kind_of
from demur.offline.data.foreigners import obvious_foreigners
from demur.service.bundle import InputPart

LENGTH = 6
MASK, IDS, TYPES = (InputPart(name, (LENGTH,), "int64") for name in ("attention_mask", "input_ids", "token_type_ids"))
PARTS = (MASK, IDS, TYPES)
CATEGORIES = (InputPart("colour", (2,), "int64"), InputPart("used", (1,), "bool"))


def texts(count: int = 8) -> Tensor:
    """Rows of one to six tokens between 3 and 19, filled with 0, all of the second kind."""
    generator = torch.Generator().manual_seed(0)
    there = (torch.arange(LENGTH) <= torch.arange(count).unsqueeze(1) % LENGTH).float()
    ids = torch.randint(3, 19, (count, LENGTH), generator=generator) * there
    return torch.cat([there, ids, there], dim=1)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (None, "table"),
        (PARTS, "tokens"),
        (CATEGORIES, "tokens"),
        ((IDS, InputPart("length", (1,), "float32")), "table"),
    ],
)
def test_what_is_packed_decides(parts: tuple[InputPart, ...] | None, expected: str) -> None:
    assert kind_of(texts(), parts) == expected


def test_foreigners_are_those_of_tokens() -> None:
    before, seen = texts(), texts()
    foreign = obvious_foreigners(seen, 0, PARTS)
    assert set(foreign) == {"random-tokens", "constant-token"}
    for other in foreign.values():
        mask, ids, types = other.split(LENGTH, dim=1)
        assert torch.equal(mask, before[:, :LENGTH])
        assert torch.equal(types, before[:, 2 * LENGTH :])
        assert not ids[mask == 0].any()
        assert not torch.equal(other, before)
        assert other.dtype == before.dtype
    assert torch.equal(seen, before)


def test_a_part_without_a_mask_changes_everywhere() -> None:
    packed = torch.tensor([[1.0, 2, 0], [3, 4, 1]])
    found = changed(packed, lambda tokens, _: 1 - tokens, torch.Generator(), CATEGORIES)
    assert found.tolist() == [[0, -1, 1], [-2, -3, 0]]
