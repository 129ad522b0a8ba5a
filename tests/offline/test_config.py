"""FitConfig refuses what cannot be meant, naming the field; sizes are resolved against the model's weights."""

import functools
import math
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from demur.offline.config import FitConfig, OptionError, StrategyName, WholeStrategyName, strategy_name
from demur.offline.selection.registry import STRATEGIES

BAD: list[tuple[str, list[Any]]] = [
    ("likelihood", ["poisson", None, ""]),
    ("subnetwork_size", [0, -1, 0.0, -0.1, 1.0001, 2.5, math.nan, math.inf, None, "many", True]),
    ("selection", ["wasserstein", "", None, "Random"]),
    ("selection_options", [None, [], "snapshots"]),
    ("prior_precision", [0, 0.0, -1.0, math.nan, math.inf, "grid"]),
    ("sigma_noise", [0, -0.5, math.nan, math.inf, "map", None]),
    ("temperature", [0, -1.0, math.nan, math.inf, "auto"]),
    ("false_reject_rate", [0, 1, -0.1, 1.5, math.nan, None]),
    ("seed", [-1, 2**63, 0.5, "zero", None]),
    ("device", ["gpu", "cuda:", "cuda:x", "cuda:0 ", "CPU", "", None]),
    ("within", ["fc", 3, [1]]),
    ("uncertainty_budget", [0, -1, math.inf]),
    ("memory_budget", [0, -1, "much", "2 apples"]),
    ("name", ["", "a/b", "..", "x" * 201, None]),
    ("version", ["", "1/2", "x" * 101, None]),
]
GOOD: list[tuple[str, list[Any]]] = [
    ("subnetwork_size", [1, 10**9, 1.0, 0.5, 1e-9]),
    ("prior_precision", [1e-30, 1e30, 1.0, 3, "budget", "gridsearch", "marglik", None]),
    ("sigma_noise", [1e-30, 2, "mle"]),
    ("temperature", [0.1, 2, "fit", None]),
    ("false_reject_rate", [1e-9, 0.5, 1 - 1e-9]),
    ("seed", [0, 2**63 - 1]),
    ("device", ["auto", "cpu", "cuda", "cuda:0", "cuda:12"]),
    ("name", ["digits", "x" * 200, "Ziffern, neu"]),
    ("selection", list(get_args(StrategyName))),
    ("within", [("fc",), ("layer4", "fc"), None]),
    ("uncertainty_budget", [1e-9, 0.05, 10, None]),
    ("memory_budget", [1, 2**40]),
]


def cases(table: list[tuple[str, list[Any]]]) -> pytest.MarkDecorator:
    pairs = [(field, value) for field, values in table for value in values]
    return pytest.mark.parametrize(("field", "value"), pairs, ids=[f"{f}={v!r:.20}" for f, v in pairs])


@cases(BAD)
def test_a_bad_value_is_refused_and_its_field_named(field: str, value: Any) -> None:
    with pytest.raises(OptionError) as raised:
        FitConfig(**{field: value})
    text = str(raised.value)
    assert text.startswith(f"{field}: found ")
    assert ", expected " in text
    assert "\n" not in text
    assert "pydantic" not in text


@cases(GOOD)
def test_a_good_value_is_kept(field: str, value: Any) -> None:
    assert getattr(FitConfig(**{field: value}), field) == value


def test_an_unknown_field_is_refused() -> None:
    with pytest.raises(OptionError, match=r"^subnetwork_sise: unknown option \(did you mean 'subnetwork_size'\?\)"):
        FitConfig(subnetwork_sise=3)  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"temperature": -1.0}, "temperature: found -1.0, expected a number greater than 0 or 'fit'"),
        ({"device": "gpu"}, "device: found 'gpu', expected 'auto', 'cpu', 'cuda' or 'cuda:n'"),
        ({"within": "fc"}, "within: found 'fc', expected a list"),
        ({"memory_budget": "2 apples"}, "memory_budget: found '2 apples', expected a number of bytes, such as '2GiB'"),
        (
            {"selection": "randon"},
            "selection: found 'randon' (did you mean 'random'?), expected 'auto', 'wasserstein-swag',",
        ),
        (
            {"likelihood": "regresion"},
            "likelihood: found 'regresion' (did you mean 'regression'?), expected 'classification'",
        ),
    ],
)
def test_errors_are_one_plain_line(options: dict[str, Any], text: str) -> None:
    with pytest.raises(OptionError) as raised:
        FitConfig(**options)
    assert str(raised.value).startswith(text)


def test_a_memory_budget_may_have_units() -> None:
    assert FitConfig(memory_budget="2GiB").memory_budget == 2**31  # type: ignore[arg-type]


def test_a_config_does_not_change() -> None:
    config = FitConfig()
    with pytest.raises(ValidationError, match="frozen"):
        config.seed = 3


@pytest.mark.parametrize("field", ["prior_precision", "sigma_noise", "temperature"])
def test_whole_numbers_become_floats(field: str) -> None:
    values: dict[str, Any] = {field: 3}
    assert type(getattr(FitConfig(**values), field)) is float


def test_one_weight_and_all_weights_differ() -> None:
    assert type(FitConfig(subnetwork_size=1).subnetwork_size) is int
    assert type(FitConfig(subnetwork_size=1.0).subnetwork_size) is float
    assert FitConfig(subnetwork_size=1).resolve_size(50) == 1
    assert FitConfig(subnetwork_size=1.0).resolve_size(50) == 50


def test_a_config_survives_its_own_dump() -> None:
    config = FitConfig(subnetwork_size=0.5, prior_precision=2.0, selection="random", selection_options={"a": [1]})
    assert FitConfig.model_validate(config.model_dump()) == config
    assert FitConfig.model_validate_json(config.model_dump_json()) == config


def test_a_function_may_choose_the_weights() -> None:
    config = FitConfig(selection=cases)
    assert config.selection is cases
    assert '"selection":"cases()"' in config.model_dump_json()


class Chooser:
    def __call__(self) -> None: ...


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("random", "random"),
        (Chooser(), "Chooser()"),
        (Chooser, "Chooser()"),
        (functools.partial(functools.partial(strategy_name), "random"), "strategy_name()"),
        (functools.partial(Chooser()), "Chooser()"),
        (lambda: None, "<lambda>()"),
    ],
)
def test_the_name_of_a_strategy_is_the_same_in_every_process(given: Any, name: str) -> None:
    assert strategy_name(given) == name


def test_every_strategy_that_the_config_knows_exists() -> None:
    assert get_args(StrategyName) == tuple(STRATEGIES)
    assert get_args(WholeStrategyName) == tuple(name for name, strategy in STRATEGIES.items() if strategy.whole)
    for strategy in STRATEGIES:
        assert FitConfig(selection=strategy).selection == strategy  # type: ignore[arg-type]


# --------------------------------------------------------------------------- resolve_size


@pytest.mark.parametrize(
    ("size", "total", "expected"),
    [(7, 10, 7), (10, 10, 10), (0.5, 10, 5), (0.01, 10, 1), (1.0, 10, 10), (0.25, 10, 2), (0.999, 10, 10), (1, 1, 1)],
)
def test_resolved_sizes(size: float, total: int, expected: int) -> None:
    assert FitConfig(subnetwork_size=size).resolve_size(total) == expected


def test_more_weights_than_there_are_is_an_error() -> None:
    with pytest.raises(ValueError, match="subnetwork_size: found 11, expected at most the model's 10 trainable"):
        FitConfig(subnetwork_size=11, selection="random").resolve_size(10)


def test_the_last_layer_takes_at_most_so_many() -> None:
    assert FitConfig(subnetwork_size=1000, selection="last-layer").resolve_size(10) == 10
    assert FitConfig().resolve_size(10) == 10  # `auto`


@pytest.mark.parametrize("added", [True, False])
def test_the_budget_is_relative_to_the_loss(added: bool) -> None:
    config = FitConfig()
    assert [config.budget(loss, added=added) for loss in (1.0, 0.05, 0.0)] == pytest.approx([0.004, 0.0025, 0.001])
    assert FitConfig(uncertainty_budget=0.1).budget(0.01, added=added) == 0.1
    assert FitConfig(likelihood="regression").budget(1.0, added=added) == (0.004 if added else 0.05)


@settings(derandomize=True, deadline=None)
@given(st.floats(0, 1, exclude_min=True), st.integers(1, 10**9))
def test_a_share_gives_at_least_one_and_at_most_all(share: float, total: int) -> None:
    size = FitConfig(subnetwork_size=share).resolve_size(total)
    assert isinstance(size, int)
    assert 1 <= size <= total
    assert abs(size - share * total) <= 1


def test_without_added_weights_the_temperature_is_one() -> None:
    both, alone = FitConfig(), FitConfig(added_weights=False)
    assert both.fits_temperature
    assert (alone.fits_temperature, alone.given_temperature) == (False, 1.0)
    assert FitConfig(temperature="fit", added_weights=False).fits_temperature
    assert not FitConfig(temperature=2.0).fits_temperature
    assert FitConfig(temperature=2.0).given_temperature == 2.0
    assert FitConfig().model_copy(update={"temperature": 2}).given_temperature == 2
    assert not FitConfig(likelihood="regression").fits_temperature
