"""What a recipe's data show to be wrong, before its network is trained."""

from collections.abc import Sequence
from typing import Any

import torch

from demur.service.bundle import InputSpec

from ..config import FitConfig
from ..data.agreement import check_class_count, check_targets_alone
from ..data.description import check_class_names, check_input_spec
from ..data.given import Given, Like, given_data, given_foreign, given_like
from ..data.held_out import TUNING_SHARE, check_enough
from ..data.texts import COMPARED, TextEncoder, texts_in
from .load import Recipe

CPU = torch.device("cpu")
TRAIN, HELD_OUT, FOREIGN = "train_data", "calibration_data", "foreign_data"


def looked_at(
    recipe: Recipe, config: FitConfig, names: Sequence[str] | None, spec: InputSpec | None, tokenizer: Any = None
) -> dict[str, Any]:
    """The recipe's data by the name of their function, once the first batches are found to suit each other, the
    likelihood, the recipe's class names and its input spec. Random numbers are left as they were. Of texts, what the
    network takes is not known yet, so they stay texts.

    Raises `ValueError` or `TypeError` for what cannot be used.
    """
    given = {name: recipe.data(name) for name in (TRAIN, HELD_OUT, FOREIGN) if name != FOREIGN or recipe.has(name)}
    with recipe.running(), torch.random.fork_rng(devices=[]):
        texts = None if tokenizer is None else texts_in(given[TRAIN])
        encoder = None if texts is None else TextEncoder.of(tokenizer, texts[:COMPARED])
        found = _checked(given, config, spec, names, encoder)
        return found if encoder is None else given


def _checked(
    given: dict[str, Any],
    config: FitConfig,
    spec: InputSpec | None,
    names: Sequence[str] | None,
    encoder: TextEncoder | None,
) -> dict[str, Given]:
    if names is not None:
        check_class_names(names, len(names))
    columns = None if spec is None else spec.feature_names
    train = given_data(given[TRAIN], f"{TRAIN}()", columns, encoder=encoder)
    example, targets, raw = train.first(CPU)
    check_targets_alone(targets, config.likelihood, f"{TRAIN}()")
    check_class_count(names, targets, config.likelihood)
    if hasattr(raw, "__array__") and encoder is None:  # what a network takes of several, its own arguments tell
        check_input_spec(spec, example, train.columns)
    data = {TRAIN: train}
    for name, value in given.items():
        if name == TRAIN:
            continue
        if name == FOREIGN:
            data[name] = given_foreign(value, f"{name}()", columns or train.columns, encoder)
        else:
            data[name] = given_like(train, value, f"{name}()", columns)
        inputs, values, _ = data[name].first(CPU)
        Like(tuple(example.shape[1:]), example.dtype, of=f"{TRAIN}()").check(inputs, f"{name}()")
        if name == HELD_OUT:
            check_targets_alone(values, config.likelihood, f"{name}()")
            check_class_count(names, values, config.likelihood)
            _check_enough(data[name], config)
    return data


def _check_enough(data: Given, config: FitConfig) -> None:
    """Where the number of examples is known beforehand."""
    if count := data.dataset_size:
        tuning = int(TUNING_SHARE * count) if config.tunes else 0
        check_enough(tuning, count - tuning, config.false_reject_rate, config.tunes)
