"""service/security/api_keys.py: the file of keys, and the owners of keys; `python -m demur.service.keys new`."""

import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from demur.service.keys import app
from demur.service.security.api_keys import CHECK_SECONDS, MAX_FILE_BYTES, KeyFileError, KeyRing, new_key, parse_keys
from tests.support.server import ROOT, TIMEOUT, environment

DIGEST = "ab" * 32


class Clock:
    """Seconds that pass when a test moves them."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys"


def write(file: Path, *names: str) -> list[str]:
    """Put new keys into the file, as an editor does that replaces it."""
    made = [new_key(name) for name in names]
    fresh = file.with_name("new")
    fresh.write_text("# who may ask\n\n" + "".join(f"{entry.line}  # comment\n" for _, entry in made))
    fresh.replace(file)
    return [key for key, _ in made]


def test_a_key_is_its_owners_and_no_other_string_is(file: Path) -> None:
    first, second = write(file, "first", "second")
    ring = KeyRing(file)
    assert [ring.owner(key) for key in (first, second)] == ["first", "second"]
    for other in ("", "demur_", first[:-1], first + "x", first.upper(), f" {first}", "é", DIGEST, file.read_text()):
        assert ring.owner(other) is None
    assert ring.owner(first.encode()) == "first"
    assert ring.owner(b"\xff\x00") is None


def test_keys_are_long_and_differ(file: Path) -> None:
    keys = {new_key("a")[0] for _ in range(100)}
    assert len(keys) == 100
    assert all(len(key) == len("demur_") + 43 for key in keys)  # 256 bits, 6 a letter
    key, entry = new_key("a")
    assert key not in repr(entry)


@given(st.text(max_size=70))
def test_every_name_is_refused_or_can_be_read_again(name: str) -> None:
    try:
        _, entry = new_key(name)
    except KeyFileError:
        return
    assert parse_keys(entry.line, Path("keys")) == (entry,)


@pytest.mark.parametrize(
    "line",
    [
        "somebody",
        DIGEST,
        f"name {DIGEST}",
        f"name md5:{DIGEST}",
        f"name sha256:{DIGEST}0",
        f"name sha256:{DIGEST[:-1]}",
        f"name sha256:{DIGEST[:-1]}g",
        f"two names sha256:{DIGEST}",
        f"-name sha256:{DIGEST}",
        f"{'x' * 65} sha256:{DIGEST}",
        f"name sha256: {DIGEST}",
        "name demur_a-key-pasted-by-mistake",
    ],
)
def test_a_malformed_line_is_named_and_not_shown(file: Path, line: str) -> None:
    file.write_text(f"# comment\n\ngood sha256:{DIGEST}\n{line}\n")
    with pytest.raises(KeyFileError) as caught:
        KeyRing(file)
    assert f"{file}, line 4: " in str(caught.value)
    assert "sha256:HEX" in str(caught.value)
    assert line not in str(caught.value)


def test_a_worker_that_starts_later_leaves_a_malformed_line_out(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    (key,) = write(file, "name")
    file.write_text(file.read_text() + f"name sha256:{DIGEST}\ndemur_a-key-pasted-by-mistake\n")
    with caplog.at_level(logging.ERROR, "demur"):
        ring = KeyRing(file, strict=False)
    assert ring.owner(key) == "name"
    assert [message.partition(": found")[0][-6:] for message in caplog.messages] == ["line 4", "line 5"]
    assert "pasted" not in caplog.text
    file.write_text("")
    with pytest.raises(KeyFileError, match="found no key"):
        KeyRing(file, strict=False)


def test_other_bad_files_are_refused_at_the_start(file: Path, tmp_path: Path) -> None:
    with pytest.raises(KeyFileError, match=r"cannot be read \(No such file or directory\).*the setting that names it"):
        KeyRing(file)
    with pytest.raises(KeyFileError, match="cannot be read"):
        KeyRing(tmp_path)
    for data, message in (
        (b"", "found no key"),
        (b"# only a comment\n", "found no key"),
        (b"\xff", "not UTF-8"),
        (b"#" * (MAX_FILE_BYTES + 1), "found more than"),
        (f"a sha256:{DIGEST}\na sha256:{'cd' * 32}".encode(), "line 2: found the name 'a' again"),
        (f"a sha256:{DIGEST}\nb sha256:{DIGEST.upper()}".encode(), "line 2: found the key of 'a' again"),
    ):
        file.write_bytes(data)
        with pytest.raises(KeyFileError, match=message):
            KeyRing(file)


def test_keys_are_exchanged_without_a_restart(file: Path, clock: Clock) -> None:
    (old,) = write(file, "old")
    ring = KeyRing(file, clock)
    (new,) = write(file, "new")
    clock.seconds += CHECK_SECONDS / 2
    assert (ring.owner(old), ring.owner(new)) == ("old", None)  # not looked at yet
    clock.seconds += CHECK_SECONDS / 2
    assert (ring.owner(old), ring.owner(new)) == (None, "new")


def test_the_file_is_looked_at_once_a_second_at_most(file: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    (key,) = write(file, "name")
    ring, looks, stat = KeyRing(file, clock), list[Path](), Path.stat

    def looking(path: Path, **options: Any) -> os.stat_result:
        looks.append(path)
        return stat(path, **options)

    monkeypatch.setattr(Path, "stat", looking)
    for _ in range(100):
        clock.seconds += CHECK_SECONDS / 10
        assert ring.owner(key) == "name"
    assert 9 <= len(looks) <= 10


def test_a_file_that_became_bad_keeps_the_old_keys_and_is_logged_once(
    file: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    (key,) = write(file, "name")
    ring = KeyRing(file, clock)
    caplog.set_level(logging.ERROR, "demur")
    for change in (lambda: file.write_text("nonsense"), lambda: file.write_text(""), file.unlink):
        caplog.clear()
        change()
        for _ in range(3):
            clock.seconds += CHECK_SECONDS
            assert ring.owner(key) == "name"
        (record,) = caplog.records
        assert "the earlier ones stay valid" in record.getMessage()
        assert key not in record.getMessage()
    (new,) = write(file, "other")
    clock.seconds += CHECK_SECONDS
    assert (ring.owner(key), ring.owner(new)) == (None, "other")


def test_a_wrong_line_costs_its_own_key_only(file: Path, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    good, gone, spoilt = write(file, "good", "gone", "spoilt")
    ring = KeyRing(file, clock)
    lines = file.read_text().splitlines()
    file.write_text("\n".join([lines[2], lines[4].replace("sha256", "sha")]))
    clock.seconds += CHECK_SECONDS
    assert [ring.owner(key) for key in (good, gone, spoilt)] == ["good", None, None]
    assert [record.getMessage() for record in caplog.records if "line 2" in record.getMessage()]


def test_a_change_that_keeps_time_and_size_is_seen(file: Path, clock: Clock) -> None:
    """As a file that a mounted secret's symbolic link leads to: another inode."""
    (old,) = write(file, "name")
    status = file.stat()
    ring = KeyRing(file, clock)
    (new,) = write(file, "name")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (file.stat().st_size, file.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)
    clock.seconds += CHECK_SECONDS
    assert (ring.owner(old), ring.owner(new)) == (None, "name")


def test_the_command_prints_a_key_and_its_line(file: Path) -> None:
    result = CliRunner().invoke(app, ["new", "somebody"])
    assert result.exit_code == 0
    key, line = result.stdout.splitlines()
    file.write_text(line)
    assert KeyRing(file).owner(key) == "somebody"
    bad = CliRunner().invoke(app, ["new", "two words"])
    assert bad.exit_code == 2
    assert bad.stdout == ""
    assert bad.stderr.startswith("error: name: found 'two words'")


def test_the_command_works_where_torch_and_the_offline_job_are_missing() -> None:
    code = (
        "import runpy, sys\n"
        "sys.modules.update(dict.fromkeys(('torch', 'offline', 'onnx'), None))\n"
        "sys.argv = ['keys', 'new', 'name']\n"
        "runpy.run_module('demur.service.keys', run_name='__main__')"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    ended = subprocess.run(
        command, cwd=ROOT, env=environment(), text=True, capture_output=True, timeout=TIMEOUT, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines()[1].startswith("name sha256:")
