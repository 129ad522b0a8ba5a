"""The options of `demur fit` become values for `FitConfig`."""

import pytest

from demur.fit_options import parsed
from demur.offline import FitConfig

GIVEN = {
    "on": (["true"], True),
    "off": (["False"], False),
    "a layer": (["net.4"], ("net.4",)),
    "layers": (["net.2", "net.4"], ("net.2", "net.4")),
}


@pytest.mark.parametrize(("words", "value"), GIVEN.values(), ids=GIVEN)
def test_added_weights_are_a_switch_or_layers(words: list[str], value: bool | tuple[str, ...]) -> None:
    assert parsed({"added_weights": words, "seed": None}) == {"added_weights": value}
    assert FitConfig(**parsed({"added_weights": words})).added_weights == value
