"""service/feedback/labelled.py: a label counts once, for as long as its receipt is remembered."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from demur.service.feedback.labelled import LabelledExamples


def known(*examples: int, of: int = 4) -> np.ndarray:
    found = np.zeros(of, bool)
    found[list(examples)] = True
    return found


def test_the_first_label_of_an_example_counts() -> None:
    labelled = LabelledExamples()
    assert labelled.add(b"a", known(0, 1)).tolist() == [True, True, False, False]
    assert labelled.add(b"a", known(0, 2)).tolist() == [False, False, True, False]
    assert not labelled.add(b"a", known()).any()
    assert labelled.add(b"b", known(0)).tolist() == [True, False, False, False]
    assert labelled.add(b"a", known(0, 1, 2, 3)).tolist() == [False, False, False, True]


@given(st.integers(1, 40), st.lists(st.sets(st.integers(0, 39)), max_size=6))
def test_every_label_counts_once(examples: int, several: list[set[int]]) -> None:
    labelled, total = LabelledExamples(), np.zeros(examples, int)
    for places in several:
        total += labelled.add(b"a", known(*(place for place in places if place < examples), of=examples))
    expected = {place for places in several for place in places if place < examples}
    assert total.tolist() == [int(place in expected) for place in range(examples)]


def test_the_receipts_whose_labels_came_first_are_forgotten() -> None:
    labelled = LabelledExamples(most_receipts=3)
    for name in (b"a", b"b", b"c", b"a", b"d"):  # a label of a keeps it
        labelled.add(name, known(0))
    assert [labelled.add(name, known(0)).any() for name in (b"a", b"c", b"d", b"b")] == [False, False, False, True]


def test_their_bytes_are_bounded() -> None:
    labelled = LabelledExamples(most_bytes=10)
    for name in (b"a", b"b", b"c"):
        labelled.add(name, known(0, of=40))  # five bytes
    assert [labelled.add(name, known(0, of=40)).any() for name in (b"c", b"b", b"a")] == [False, False, True]
    assert labelled.add(b"large", known(0, of=100)).any()
    assert labelled.add(b"large", known(0, of=100)).any()
    assert labelled.add(b"a", known(0, of=40)).any()
    assert not labelled.add(b"a", known(0, of=40)).any()
