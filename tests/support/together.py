"""Cases that are tried in one network, which costs an export once, and one by one where that fails."""

from collections.abc import Callable, Sequence

import pytest


def try_together(check: Callable[[Sequence[str]], None], names: Sequence[str]) -> None:
    """`check` of all cases at once; where it fails, the failure says which of them fail alone too, and how."""
    try:
        check(names)
    except (Exception, pytest.fail.Exception) as error:
        if len(names) == 1:
            raise
        alone = {name: told for name in names if (told := _failure(check, name))}
        raise AssertionError(f"{error}\nEach case alone: {alone or 'all pass'}") from error


def _failure(check: Callable[[Sequence[str]], None], name: str) -> str | None:
    try:
        check([name])
    except (Exception, pytest.fail.Exception) as error:
        return f"{type(error).__name__}: {error}"
    return None
