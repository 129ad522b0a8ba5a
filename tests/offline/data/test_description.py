"""What names and input specs a fit takes from Python; recipes are in `tests/demur/test_mistakes.py`."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from demur.offline.data.description import check_class_names, check_input_spec


@pytest.mark.parametrize("names", [["a", "b"], ("a", "b"), np.array(["a", "b"]), pd.Index(["a", "b"])], ids=str)
def test_names_in_an_order_are_taken(names: Any) -> None:
    assert check_class_names(names, 2) == ("a", "b")


def test_numbers_become_names() -> None:
    assert check_class_names(np.array([0, 1]), 2) == ("0", "1")


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ({"a", "b"}, "found set, expected a list of names"),
        ({0: "a", 1: "b"}, "found dict, expected a list of names"),
        ("ab", "found str, expected a list of names"),
        (["a", ""], r"found \['a', ''\], expected a name for each class"),
        (["a", "a"], r"found \['a', 'a'\], expected 2 names, all different"),
    ],
)
def test_others_are_refused(names: Any, words: str) -> None:
    with pytest.raises(ValueError, match=f"class_names: {words}"):
        check_class_names(names, 2)


@pytest.mark.parametrize("spec", [(4,), {"shape": (4,)}])
def test_a_spec_is_an_input_spec(spec: Any) -> None:
    with pytest.raises(TypeError, match=r"input_spec: found \w+, expected an InputSpec, such as InputSpec\(shape="):
        check_input_spec(spec, torch.zeros(2, 4))
