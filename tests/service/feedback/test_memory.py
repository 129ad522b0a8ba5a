"""service/feedback/memory.py: answers that wait to be written are found, and all are written at the end."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, Counter

from probity.service.feedback.answers import Answers
from probity.service.feedback.database import Answered, FeedbackDatabase
from probity.service.feedback.memory import FeedbackMemory


def answered(name: str, examples: int) -> Answered:
    return Answered(name, "model", "1", "d", Answers(np.zeros(examples, np.uint8), np.zeros((examples, 2))))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "feedback.db"


@pytest.fixture
def memory(file: Path) -> Iterator[FeedbackMemory]:
    lost = Counter("lost", "Lost.", registry=CollectorRegistry())
    memory = FeedbackMemory(FeedbackDatabase(file, 1000), lost)
    memory.start()
    yield memory
    memory.close()


def remember(memory: FeedbackMemory, name: str, examples: int) -> None:
    memory.remember(partial(answered, name, examples), examples, examples)


def test_an_answer_is_found_as_soon_as_it_is_remembered(memory: FeedbackMemory) -> None:
    for number in range(20):
        remember(memory, f"{number}", 3)
        assert memory.find(f"{number}") is not None
    assert memory.find("20") is None


def test_labels_never_go_to_an_earlier_request_of_the_same_id(memory: FeedbackMemory) -> None:
    for examples in (2, 3):
        remember(memory, "a", examples)
        found = memory.find("a")
        assert found is not None
        assert len(found.answers) == examples
        assert found.repeated == (examples == 3)


def test_all_answers_are_written_at_the_end(file: Path) -> None:
    memory = FeedbackMemory(FeedbackDatabase(file, 1000), Counter("lost", "Lost.", registry=CollectorRegistry()))
    for number in range(250):
        remember(memory, f"{number}", 1)
    memory.start()
    memory.close()
    later = FeedbackDatabase(file, 1000)
    assert all(later.find(f"{number}") is not None for number in range(250))
    later.close()
