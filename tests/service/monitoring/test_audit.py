"""service/monitoring/audit.py: the lines come in order, and what is lost is counted."""

import errno
import logging
import threading
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter

from demur.service.monitoring.audit import AuditTrail
from demur.service.monitoring.audit_file import RotatedFile
from demur.service.monitoring.background import BATCH_NUMBERS, QUEUED


class Failing(RotatedFile):
    """A disk that is full until `free` is set."""

    free = False

    def append(self, lines: bytes, state: bytes = b"") -> None:
        if not self.free:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().append(lines, state)


@pytest.fixture
def lost() -> Counter:
    return Counter("lost", "Lines lost.", registry=CollectorRegistry())


def value(counter: Counter) -> float:
    (family,) = counter.collect()
    return next(sample.value for sample in family.samples if sample.name.endswith("_total"))


def test_lines_come_in_order_and_all_of_them_at_the_end(tmp_path: Path, lost: Counter) -> None:
    trail = AuditTrail(RotatedFile(tmp_path / "audit", 10**6, 1), lost)
    trail.start()
    for number in range(QUEUED // 2):
        trail.note(lambda number=number: b"%d\n" % number, 1)  # type: ignore[misc]
    trail.close()
    assert (tmp_path / "audit").read_text().split() == [str(number) for number in range(QUEUED // 2)]
    assert value(lost) == 0


def test_a_full_disk_is_counted_and_logged_once(
    tmp_path: Path, lost: Counter, caplog: pytest.LogCaptureFixture
) -> None:
    file = Failing(tmp_path / "audit", 10**6, 1)
    trail = AuditTrail(file, lost)
    trail.start()
    done = threading.Event()
    for _ in range(3):
        trail.note(lambda: b"a\nb\n", 2, BATCH_NUMBERS)  # each is a batch

    def recovered() -> bytes:
        file.free = True
        done.set()
        return b"c\n"

    trail.note(recovered, 1, BATCH_NUMBERS)
    assert done.wait(10)
    trail.close()
    assert value(lost) == 6
    assert (tmp_path / "audit").read_text() == "c\n"
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "Lines of the audit trail are lost: No space left on device" in caplog.text


def test_an_error_in_one_line_costs_no_other(tmp_path: Path, lost: Counter, caplog: pytest.LogCaptureFixture) -> None:
    trail = AuditTrail(RotatedFile(tmp_path / "audit", 10**6, 1), lost)
    trail.start()
    trail.note(lambda: b"%d" % (1 // 0), 3)
    trail.note(lambda: b"a\n", 1)
    trail.close()
    assert value(lost) == 3
    assert (tmp_path / "audit").read_text() == "a\n"
    assert "ZeroDivisionError" in caplog.text


def test_what_the_disk_cannot_take_in_time_is_lost_and_counted(tmp_path: Path, lost: Counter) -> None:
    """No request waits for it."""
    trail = AuditTrail(RotatedFile(tmp_path / "audit", 10**6, 1), lost)
    for _ in range(QUEUED + 5):
        trail.note(lambda: b"a\n", 1)
    assert value(lost) == 5
    trail.start()
    trail.close()
    assert len((tmp_path / "audit").read_text().split()) == QUEUED
    assert value(lost) == 5
