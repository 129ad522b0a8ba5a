"""Numbers on the command line, refused in the words of the settings."""

import re
from collections.abc import Callable

import typer


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """The parser of an option that takes a whole number in this range; raises `typer.BadParameter`."""
    expected = f"a whole number, at least {least}" if most is None else f"a whole number from {least} to {most}"

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least or (most is not None and value > most):
            raise typer.BadParameter(f"found {text!r:.50}, expected {expected}")
        return value

    return parse


def number(text: str) -> float:
    """The parser of an option that takes any number; raises `typer.BadParameter`."""
    try:
        return float(text)
    except ValueError:
        raise typer.BadParameter(f"found {text!r:.50}, expected a number") from None


def share_of(text: str) -> tuple[int, int]:
    """`I/N`, the I-th of N parts, from 1 on -> (I, N); raises `ValueError`."""
    found = re.fullmatch(r"0*([1-9][0-9]{0,8})/0*([1-9][0-9]{0,8})", text)
    if found is None or int(found[1]) > int(found[2]):
        raise ValueError(f"--rows: found {text!r:.50}, expected I/N, such as 1/4 for the first of four parts")
    return int(found[1]), int(found[2])


def version_share(text: str) -> tuple[str, float]:
    """`VERSION=SHARE` -> both; raises `ValueError`."""
    version, separator, share = text.rpartition("=")
    try:
        if version and separator:
            return version, float(share)
    except ValueError:
        pass
    raise ValueError(f"--canary: found {text!r:.80}, expected VERSION=SHARE, such as 10=0.1")
