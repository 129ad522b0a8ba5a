"""Errors of a fit in the words of whoever called: `calibration_loader` is an option of a command elsewhere."""

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

RECIPE = {
    "train_loader": "train_data()",
    "calibration_loader": "calibration_data()",
    "foreign_loader": "foreign_data()",
}
FILES = {"train_loader": "--data", "calibration_loader": "--held-out", "class_names": "y", "targets": "y"}


@contextmanager
def in_words(names: Mapping[str, str]) -> Iterator[None]:
    """Put these names in place of those of `fit_bundle` in errors of the block. One that is also an ordinary word, and
    has no underscore, is a name at the beginning of a message alone."""
    each = (rf"\b{name}\b" if "_" in name else rf"^{name}\b" for name in names)
    pattern = re.compile("|".join(each))
    try:
        yield
    except (ValueError, TypeError) as error:
        if error.args and isinstance(error.args[0], str):
            error.args = (pattern.sub(lambda found: names[found[0]], error.args[0]), *error.args[1:])
        raise
