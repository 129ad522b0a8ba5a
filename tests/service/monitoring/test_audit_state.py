"""Every file of the audit trail says by itself what its answers depend on, whoever began it anew."""

import json
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter

from demur.service.monitoring.audit import AuditTrail
from demur.service.monitoring.audit_file import RotatedFile
from demur.service.monitoring.background import BATCH, QUEUED

Json = dict[str, Any]
KEPT = 1000
WRITERS = "ab"


def move(path: Path, aside: Path) -> None:
    if path.exists():
        path.rename(aside)


def link_and_remove(path: Path, aside: Path) -> None:
    if path.exists():
        aside.hardlink_to(path)
        path.unlink()


def move_and_create(path: Path, aside: Path) -> None:
    """As logrotate does with `create`."""
    move(path, aside)
    path.touch()


OUTSIDE: tuple[Callable[[Path, Path], None], ...] = (move, link_and_remove, move_and_create)


class Writer:
    """A process whose answers depend on `state`; it says so before them, and when that changes."""

    def __init__(self, name: str, path: Path) -> None:
        self.name, self.state = name, 0
        self.file = RotatedFile(path, most_bytes=(KEPT + 1) * 100, kept=KEPT)

    def answer(self, _: object = None) -> None:
        self.file.append(b"%s %d answer\n" % (self.name.encode(), self.state), self.said(b"repeated"))

    def change(self, _: object = None) -> None:
        before = self.said(b"repeated")
        self.state += 1
        self.file.append(self.said(b"event"), before)

    def said(self, how: bytes) -> bytes:
        return b"%s %d %s\n" % (self.name.encode(), self.state, how)


def check(file: Path) -> None:
    known: dict[str, str] = {}
    for line in file.read_text().splitlines():
        name, state, what = line.split()
        if what == "answer":
            assert known.get(name) == state, f"{file.name}: {line}"
        else:
            assert what == "event" or name not in known, f"{file.name}: repeated in the midst: {line}"
            known[name] = state


steps = st.tuples(st.sampled_from(WRITERS), st.sampled_from((Writer.answer, Writer.change))) | st.sampled_from(OUTSIDE)


@given(st.lists(steps, max_size=60))
def test_whoever_begins_a_file_anew_each_process_says_its_state_in_it(taken: list[Any]) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "audit"
        writers = {name: Writer(name, path) for name in WRITERS}
        for number, step in enumerate(taken):
            if isinstance(step, tuple):
                step[1](writers[step[0]])
            else:
                step(path, path.with_name(f"moved{number}"))
        for writer in writers.values():
            writer.file.close()
        for file in path.parent.iterdir():
            check(file)


def test_a_file_that_was_copied_and_cut_short_is_begun_anew(tmp_path: Path) -> None:
    """As logrotate does with `copytruncate`."""
    path = tmp_path / "audit"
    writers = [Writer(name, path) for name in WRITERS]
    for number in range(3):
        for writer in (*writers, *writers):
            writer.answer()
        shutil.copy(path, tmp_path / f"copy{number}")
        path.write_bytes(b"")
    for writer in writers:
        writer.answer()
        writer.file.close()
    files = list(tmp_path.iterdir())
    assert len(files) == 4
    for file in files:
        check(file)


@pytest.fixture
def lost() -> Counter:
    return Counter("lost", "Lines lost.", registry=CollectorRegistry())


def lines(file: Path) -> list[Json]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def answer() -> bytes:
    return b'{"label": 1}\n'


def ended(trail: AuditTrail) -> None:
    """What was noted before is written in batches of a hundred pieces."""
    trail.start()
    trail.close()


def test_what_holds_no_longer_is_not_repeated(tmp_path: Path, lost: Counter) -> None:
    """Neither a bundle that was replaced or unloaded, nor older pins, nor what never lasted."""
    trail = AuditTrail(RotatedFile(tmp_path / "audit", most_bytes=3, kept=2), lost)  # each batch has a file of its own
    trail.event("started", settings="none")
    trail.event("loaded", place="a", digest="1")
    trail.event("loaded", place="b", digest="2")
    trail.event("refused", place="a", problem="bad")
    trail.event("pinned", versions={"a": "1"})
    trail.event("loaded", place="a", digest="3", replaced="1")
    trail.event("unloaded", place="b", digest="2")
    trail.event("pinned", versions={})
    for _ in range(BATCH - 8 + 1):
        trail.note(answer, 1)
    ended(trail)
    first, second = lines(tmp_path / "audit.2"), lines(tmp_path / "audit.1")
    assert [line.get("event") for line in first[:3]] == ["started", "loaded", "loaded"]
    assert not any("repeated" in line for line in first)
    assert second == [{**first[number], "repeated": True} for number in (0, 5, 7)] + [{"label": 1}]
    assert (tmp_path / "audit").stat().st_size == 0


def test_answers_before_an_event_have_the_state_before_it(tmp_path: Path, lost: Counter) -> None:
    """Also where both are written at once, to a file that was begun anew."""
    trail = AuditTrail(RotatedFile(tmp_path / "audit", most_bytes=3, kept=2), lost)
    trail.event("loaded", place="a", digest="1")
    for _ in range(BATCH):
        trail.note(answer, 1)
    trail.event("loaded", place="a", digest="2")
    trail.note(answer, 1)
    ended(trail)
    found = [(line.get("digest"), line.get("repeated", False)) for line in lines(tmp_path / "audit.1")]
    assert found == [("1", True), (None, False), ("2", False), (None, False)]


def test_an_event_has_room_however_much_waits(tmp_path: Path, lost: Counter) -> None:
    trail = AuditTrail(RotatedFile(tmp_path / "audit", 10**6, 1), lost)
    for _ in range(QUEUED + 1):
        trail.note(answer, 1)
    trail.event("loaded", place="a", digest="1")
    ended(trail)
    found = lines(tmp_path / "audit")
    assert (len(found), found[-1]["digest"]) == (QUEUED + 1, "1")
    assert sum(sample.value for sample in next(iter(lost.collect())).samples if sample.name == "lost_total") == 1


def test_an_event_that_a_full_disk_did_not_take_comes_with_the_next_lines(tmp_path: Path, lost: Counter) -> None:
    path = tmp_path / "audit"
    trail = AuditTrail(RotatedFile(path, 10**6, 1), lost)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    trail.event("loaded", place="a", digest="1")
    for _ in range(BATCH - 1):
        trail.note(lambda: b"{}\n", 1)

    def full() -> bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 10, hard))
        return answer()

    trail.note(full, 1)
    trail.event("loaded", place="a", digest="2")
    for _ in range(BATCH - 2):
        trail.note(answer, 1)

    def free() -> bytes:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        return answer()

    trail.note(free, 1)
    try:
        ended(trail)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    *_, cut, repeated, last = path.read_text().splitlines()
    assert cut == '{"label": '
    assert json.loads(repeated)["digest"] == "2"
    assert json.loads(repeated)["repeated"] is True
    assert json.loads(last) == {"label": 1}
