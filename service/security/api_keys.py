"""API keys. The file holds their hashes, so that reading it reveals no key."""

import hashlib
import hmac
import logging
import os
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

PREFIX = "demur_"  # lets secret scanners recognise a leaked key
LINE = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]{0,63})\s+sha256:(?P<digest>[0-9a-fA-F]{64})")
FORM = "NAME sha256:HEX (1 to 64 letters, digits and ._-, then 64 hexadecimal digits)"
MAX_FILE_BYTES = 2**20
CHECK_SECONDS = 1.0
Stamp = tuple[int, ...]
log = logging.getLogger("demur")


class KeyFileError(ValueError):
    """The file of API keys cannot be used: the message names the line, what was found and what was expected."""


@dataclass(frozen=True)
class Entry:
    """One key: its owner's name, and its SHA-256."""

    name: str
    digest: bytes

    @property
    def line(self) -> str:
        """Its line in the file."""
        return f"{self.name} sha256:{self.digest.hex()}"


def new_key(name: str) -> tuple[str, Entry]:
    """A fresh key of 256 random bits, and its entry; `KeyFileError` for a name that the file cannot hold."""
    key = PREFIX + secrets.token_urlsafe(32)
    entry = Entry(name, _digest(key))
    if LINE.fullmatch(entry.line) is None:
        raise KeyFileError(f"name: found {name!r:.100}, expected 1 to 64 letters, digits and ._-")
    return key, entry


def parse_keys(text: str, file: Path, mistakes: list[KeyFileError] | None = None) -> tuple[Entry, ...]:
    """The entries of a key file, one a line; what follows a # is a comment.

    Raises `KeyFileError` for the first wrong line, or with `mistakes`, collects the errors there and skips the lines.
    A file without any key is an error in both cases.
    """
    entries: dict[str, Entry] = {}
    for number, line in enumerate(text.splitlines(), 1):
        try:
            entry = _entry(line, f"{file}, line {number}", entries)
        except KeyFileError as error:
            if mistakes is None:
                raise
            mistakes.append(error)
        else:
            entries |= {entry.name: entry} if entry else {}
    if not entries:
        raise KeyFileError(
            f"{file}: found no key, so every request would be refused; make one with `demur keys new NAME`"
        )
    return tuple(entries.values())


def _entry(line: str, place: str, known: Mapping[str, Entry]) -> Entry | None:
    content = line.partition("#")[0].strip()
    if not content:
        return None
    match = LINE.fullmatch(content)
    if match is None:  # the line is not shown: a key pasted by mistake would end up in the log
        raise KeyFileError(f"{place}: found {len(content)} characters of another form, expected {FORM}")
    entry = Entry(match["name"], bytes.fromhex(match["digest"]))
    if entry.name in known:
        raise KeyFileError(f"{place}: found the name {entry.name!r} again, expected names that differ")
    if twin := next((name for name, one in known.items() if one.digest == entry.digest), None):
        raise KeyFileError(f"{place}: found the key of {twin!r} again, expected one key a name")
    return entry


class KeyRing:
    """The keys in `file`, which is read again when it changes; raises `KeyFileError` where it is bad at first.

    strict: whether a single wrong line is bad then, as where somebody starts the service and reads its words. A worker
    that takes the place of another must start.

    A key is 256 random bits, so a plain SHA-256 is right: slow, salted hashes protect passwords, which can be guessed.
    Here they would only make every request expensive.

    To withdraw a key, remove its line. A line that becomes wrong disables its own key only, and is logged. A file that
    is gone, or holds no key, changes nothing: a slip while rotating keys must not lock everybody out. `now` gives
    seconds; the file is checked at most once a second.
    """

    def __init__(self, file: Path, now: Callable[[], float] = time.monotonic, *, strict: bool = True) -> None:
        self.file, self._now = file, now
        self._checked = now()
        mistakes: list[KeyFileError] = []
        self._stamp, self._entries = _read(file, None if strict else mistakes)
        _tell(mistakes)

    def owner(self, key: str | bytes) -> str | None:
        """The name of the key's owner, or None. The time taken does not depend on which entry matches."""
        self._refresh()
        digest, owner = _digest(key), None
        for entry in self._entries:
            if hmac.compare_digest(digest, entry.digest):
                owner = entry.name
        return owner

    def _refresh(self) -> None:
        now = self._now()
        if now - self._checked < CHECK_SECONDS:
            return
        self._checked = now
        stamp = _stamp_of(self.file)
        if stamp == self._stamp:
            return
        self._stamp = stamp  # so that an error is logged once
        mistakes: list[KeyFileError] = []
        try:
            self._stamp, self._entries = _read(self.file, mistakes)
        except KeyFileError as error:
            log.error("API keys not read again, the earlier ones stay valid: %s", error)
        else:
            log.info("%s: read again, %d API keys", self.file, len(self._entries))
            _tell(mistakes)


def _tell(mistakes: list[KeyFileError]) -> None:
    for mistake in mistakes:
        log.error("an API key is left out: %s", mistake)


def _digest(key: str | bytes) -> bytes:
    return hashlib.sha256(key.encode() if isinstance(key, str) else key).digest()


def _read(file: Path, mistakes: list[KeyFileError] | None = None) -> tuple[Stamp, tuple[Entry, ...]]:
    """The file's stamp and its entries."""
    try:
        with open(file, "rb") as stream:
            stamp = _stamp(os.fstat(stream.fileno()))
            data = stream.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise KeyFileError(f"{file}: found more than {MAX_FILE_BYTES} bytes, expected a line for each key")
        return stamp, parse_keys(data.decode(), file, mistakes)
    except OSError as error:
        raise KeyFileError(f"{file}: cannot be read ({error.strerror}); check the setting that names it") from None
    except UnicodeDecodeError:
        raise KeyFileError(f"{file}: found bytes that are not UTF-8, expected a text file") from None


def _stamp(status: os.stat_result) -> Stamp:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def _stamp_of(file: Path) -> Stamp:
    try:
        return _stamp(file.stat())
    except OSError:
        return ()
