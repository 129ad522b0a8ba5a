"""service/feedback/database.py: answers are found until others take their room, and a label counts once."""

import contextlib
import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from probity.service.feedback.answers import Answers
from probity.service.feedback.database import Answered, FeedbackDatabase, FeedbackFileError
from probity.service.maths.accuracy_evidence import bet_on_errors, fresh_gambler

RIGHT, WRONG = 0.0, 1.0


def answered(name: str, examples: int = 2, digest: str = "d") -> Answered:
    values = np.arange(2.0 * examples).reshape(examples, 2)
    return Answered(name, "model", "1", digest, Answers(np.zeros(examples, np.uint8), values))


@pytest.fixture
def database(tmp_path: Path) -> FeedbackDatabase:
    return FeedbackDatabase(tmp_path / "feedback.db", 10)


def test_an_answer_is_found_as_it_was_and_by_its_own_id(database: FeedbackDatabase) -> None:
    one = answered("a", 3)
    database.remember(one)
    found = database.find("a")
    assert found is not None
    assert (found.id, found.model, found.version, found.digest) == ("a", "model", "1", "d")
    np.testing.assert_array_equal(found.answers.values, one.answers.values)
    np.testing.assert_array_equal(found.answers.decisions, one.answers.decisions)
    assert database.find("b") is None


def test_the_oldest_examples_are_forgotten(database: FeedbackDatabase) -> None:
    for number in range(9):
        database.remember(answered(f"{number}"))
    assert [number for number in range(9) if database.find(f"{number}")] == [4, 5, 6, 7, 8]
    database.remember(answered("large", 30))
    assert database.find("large") is not None
    assert database.find("8") is None


def test_several_are_remembered_as_one_after_the_other_would_be(tmp_path: Path) -> None:
    several = [answered("a"), answered("b"), answered("b"), answered("a", 3), *[answered(f"{n}") for n in range(4)]]
    at_once, in_turn = FeedbackDatabase(tmp_path / "at_once", 11), FeedbackDatabase(tmp_path / "in_turn", 11)
    at_once.remember(*several)
    for one in several:
        in_turn.remember(one)
    for name in ("a", "b", *"0123"):
        found, expected = at_once.find(name), in_turn.find(name)
        assert (found is None) == (expected is None) == (name == "b")
        if found is not None and expected is not None:
            assert (found.digest, found.repeated) == (expected.digest, expected.repeated)
            np.testing.assert_array_equal(found.answers.values, expected.answers.values)


def test_an_id_that_comes_again_with_another_answer_is_known_for_it(database: FeedbackDatabase) -> None:
    repeated = []
    for examples in (1, 1, 4, 4):
        database.remember(answered("a", examples))
        found = database.find("a")
        assert found is not None
        assert len(found.answers) == examples
        repeated.append(found.repeated)
    assert repeated == [False, False, True, True]


@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_is_deleted_or_replaced_is_begun_anew(
    tmp_path: Path, replaced: bool, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "feedback.db"
    first, second = FeedbackDatabase(file, 100), FeedbackDatabase(file, 100)
    first.remember(answered("a"))
    for old in tmp_path.iterdir():
        old.unlink()
    third = FeedbackDatabase(file, 100) if replaced else None
    first.remember(answered("b"))
    assert first.find("a") is None
    for other in (second, third):
        assert other is None or other.find("b") is not None
    assert "has been deleted or replaced" in caplog.text


def test_a_file_whose_folder_is_gone_is_an_error_of_the_disk(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    database = FeedbackDatabase(tmp_path / "folder/feedback.db", 100)
    shutil.rmtree(tmp_path / "folder")
    with pytest.raises(sqlite3.Error, match="No such file or directory"):
        database.remember(answered("a"))


def test_the_first_label_of_an_example_counts(database: FeedbackDatabase) -> None:
    one = answered("a", 3)
    database.remember(one)
    errors = np.array([RIGHT, WRONG, RIGHT])
    first = database.label(one, np.array([True, True, False]), errors, 0.9)
    second = database.label(one, np.array([True, True, True]), errors, 0.9)
    assert first is not None
    assert second is not None
    assert first.evidence is not None
    assert second.evidence is not None
    assert first.new.tolist() == [True, True, False]
    assert second.new.tolist() == [False, False, True]
    expected = bet_on_errors(fresh_gambler(), [RIGHT, WRONG, RIGHT], 0.9)
    assert second.evidence.gambler.capital == expected.gambler.capital
    assert second.evidence.gambler.steps == 3


def test_examples_that_are_not_tested_are_labelled_all_the_same(database: FeedbackDatabase) -> None:
    one = answered("a")
    database.remember(one)
    found = database.label(one, np.array([True, True]), np.array([np.nan, WRONG]), 0.9)
    assert found is not None
    assert found.evidence is not None
    assert found.new.all()
    assert found.evidence.gambler.steps == 1


def test_without_an_accuracy_there_is_no_test(database: FeedbackDatabase) -> None:
    one = answered("a")
    database.remember(one)
    found = database.label(one, np.array([True, True]), np.zeros(2), None)
    assert found is not None
    assert found.evidence is None


def test_labels_of_forgotten_or_replaced_answers_are_none(database: FeedbackDatabase) -> None:
    known, errors = np.array([True, True]), np.zeros(2)
    assert database.label(answered("a"), known, errors, 0.9) is None
    database.remember(answered("a", 2, digest="other"))
    assert database.label(answered("a"), known, errors, 0.9) is None
    database.remember(answered("a", 5))
    assert database.label(answered("a"), known, errors, 0.9) is None


def test_a_second_process_goes_on_with_the_same_test(tmp_path: Path) -> None:
    """Stood for by a second connection; and the file outlives both."""
    file = tmp_path / "feedback.db"
    first, second = FeedbackDatabase(file, 100), FeedbackDatabase(file, 100)
    one = answered("a", 4)
    first.remember(one)
    first.label(one, np.array([True, True, False, False]), np.full(4, WRONG), 0.9)
    second.label(one, np.array([False, False, True, True]), np.full(4, WRONG), 0.9)
    first.close()
    second.close()
    third = FeedbackDatabase(file, 100)
    third.remember(answered("b", 1))
    found = third.label(answered("b", 1), np.array([True]), np.array([WRONG]), 0.9)
    assert found is not None
    assert found.evidence is not None
    assert found.evidence.gambler.capital == bet_on_errors(fresh_gambler(), [WRONG] * 5, 0.9).gambler.capital


def test_many_threads_and_two_connections_lose_nothing(tmp_path: Path) -> None:
    file = tmp_path / "feedback.db"
    two = [FeedbackDatabase(file, 1000), FeedbackDatabase(file, 1000)]
    one, counts = answered("a", 60), []
    two[0].remember(one)

    def label(number: int) -> int:
        known = np.arange(60) % 6 == number % 6
        found = two[number % 2].label(one, known, np.zeros(60), 0.9)
        assert found is not None
        return int(found.new.sum())

    with ThreadPoolExecutor(4) as threads:
        counts = [*threads.map(label, range(24))]
    assert sum(counts) == 60


def test_what_is_no_feedback_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    text, other = tmp_path / "text", tmp_path / "other.db"
    text.write_text("not a database, but long enough to be looked at as one: " * 40)
    connection = sqlite3.connect(other)
    connection.execute("PRAGMA application_id = 7")
    connection.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "tables.db")) as connection:
        connection.execute("CREATE TABLE theirs (a)")
    for file in (text, other, tmp_path / "tables.db", tmp_path / "missing" / "file", tmp_path):
        content = file.read_bytes() if file.is_file() else b""
        with pytest.raises(FeedbackFileError, match=r"cannot be used \(.*\), expected an SQLite file of this service"):
            FeedbackDatabase(file, 10)
        assert content == (file.read_bytes() if file.is_file() else b"")


def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    FeedbackDatabase(tmp_path / "feedback.db", 10)
    assert (tmp_path / "feedback.db").stat().st_mode & 0o777 == 0o600
