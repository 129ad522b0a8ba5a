"""An error inside the user's own code (a recipe, its model, its data), told in a few lines that say where.

The frames of this package, of installed libraries and of Python itself are left out: only the user's file, line and
source line help to mend it.
"""

import linecache
import os
import re
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from pathlib import Path

FIRST, LAST = 2, 6  # frames shown of a long recursion
LONGEST_MESSAGE = 1500  # characters; `load_state_dict` lists every missing key
LIBRARIES = {"site-packages", "dist-packages"}
# In a checkout, the packages within `demur` are links to folders beside it.
PACKAGE = Path(__file__).absolute().parents[2]
OURS = tuple(str(folder.resolve()) + os.sep for folder in (PACKAGE, PACKAGE / "offline", PACKAGE / "service"))
STANDARD = tuple(str(Path(sysconfig.get_path(name)).resolve()) + os.sep for name in ("stdlib", "platstdlib"))
# A data loader's worker process sends its traceback as text; the last line of it is the error itself.
IN_WORKER = re.compile(r'^  File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<function>.+)$', re.MULTILINE)

Frame = tuple[str, int, str]
"""File, line number, function."""


def user_error(error: BaseException) -> str | None:
    """The error and the user's frames that led to it, innermost last; None where no code of the user's took part."""
    if isinstance(error, SyntaxError) and error.filename and _is_users(error.filename):
        return _syntax_error(error)
    frames = user_frames(error)
    return None if frames is None else f"{_name(error)}{_message(error)}\n{frames}"


def syntax_problem(path: Path) -> str | None:
    """What makes a file no Python, without running it; None where it is."""
    try:
        compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except SyntaxError as error:
        return _syntax_error(error)
    except (OSError, ValueError):  # told when it is run
        return None
    return None


def user_frames(error: BaseException) -> str | None:
    """The user's frames that led to the error, two lines each; None where there are none."""
    return "\n".join(_described([*_frames(error), *_frames_in_worker(error)])) or None


def user_frames_behind(error: BaseException) -> str | None:
    """The user's frames of whatever caused an error of ours, such as the line of a model that cannot be exported."""
    cause: BaseException | None = error
    found: list[Frame] = []
    while cause is not None and not found:
        cause = cause.__cause__ or cause.__context__
        found = [] if cause is None else _frames(cause)
    return "\n".join(_described(found)) or None


def _frames(error: BaseException) -> list[Frame]:
    walked = traceback.walk_tb(error.__traceback__)
    places = [(frame.f_code.co_filename, line, frame.f_code.co_name) for frame, line in walked]
    return [place for place in places if _is_users(place[0])]


def _frames_in_worker(error: BaseException) -> list[Frame]:
    """Those that stand in the message of an error that torch has passed on from a worker process."""
    found = IN_WORKER.finditer(str(error)) if "worker process" in str(error) else ()
    places = ((match["file"], int(match["line"]), match["function"]) for match in found)
    return [place for place in places if _is_users(place[0])]


def _is_users(file: str) -> bool:
    """Neither generated code, nor ours, nor a library's, nor Python's."""
    if file.startswith("<") or not Path(file).is_file():
        return False
    path = Path(file).resolve()
    return not (LIBRARIES & set(path.parts) or str(path).startswith((*OURS, *STANDARD)))


def _described(frames: list[Frame]) -> Iterator[str]:
    """Two lines a frame; the middle of a long recursion is left out."""
    if len(frames) > FIRST + LAST:
        yield from _lines(frames[:FIRST])
        yield f"  ... {len(frames) - FIRST - LAST} more calls"
        frames = frames[-LAST:]
    yield from _lines(frames)


def _lines(frames: Iterable[Frame]) -> Iterator[str]:
    for file, number, function in frames:
        yield f"  {_shown(file)}:{number}" + ("" if function == "<module>" else f", in {function}")
        source = linecache.getline(file, number).strip()
        if source:
            yield f"    {source}"


def _shown(file: str) -> str:
    """Relative to the working directory where it lies below it."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


def _name(error: BaseException) -> str:
    return "ended by sys.exit" if isinstance(error, SystemExit) else type(error).__qualname__


def _message(error: BaseException) -> str:
    text = str(error).strip()
    if "Original Traceback" in text:  # of a worker process: its last line is the error
        text = text.splitlines()[-1].partition(": ")[2]
    text = text if len(text) <= LONGEST_MESSAGE else text[:LONGEST_MESSAGE] + " ..."
    return f": {text}" if text else ""


def _syntax_error(error: SyntaxError) -> str:
    """File, line, the source line and where in it."""
    lines = [f"{_name(error)}: {error.msg}", f"  {_shown(str(error.filename))}:{error.lineno}"]
    source = (error.text or "").rstrip("\n")
    if source.strip():
        lines.append(f"    {source.strip()}")
        if error.offset and error.offset > 0:
            lines.append(" " * (4 + error.offset - 1 - (len(source) - len(source.lstrip()))) + "^")
    return "\n".join(lines)
