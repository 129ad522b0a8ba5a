"""How far a job is, and how long it will still take: predicted part by part, and corrected as it goes."""

from collections.abc import Callable, Mapping


class WholeJob:
    """seconds: the predicted time of each part, in their order; None: not known, and taken for nothing.

    It begins with the first part. stage_left: what the running loop of the part will still take at its own pace.
    """

    def __init__(self, seconds: Mapping[str, float | None], clock: Callable[[], float]) -> None:
        self._parts = {name: value or 0.0 for name, value in seconds.items()}
        self._unknown = {name for name, value in seconds.items() if value is None}
        self._clock, self._start = clock, clock()
        self._part, self._entered = next(iter(self._parts), ""), self._start
        self._shown = 0.0
        self.stage_left = 0.0

    def enter(self, part: str) -> None:
        """Begin a part; those before it are done."""
        self._part, self._entered, self.stage_left = part, self._clock(), 0.0

    @property
    def left(self) -> float:
        """Seconds: of this part what was predicted and has not passed, or what its loop still takes; and all of the
        later ones."""
        own = self._parts.get(self._part, 0.0) - (self._clock() - self._entered)
        return max(own, self.stage_left, 0.0) + sum(self._parts[name] for name in self._rest[1:])

    @property
    def known(self) -> bool:
        """Whether the time of everything that is left was predicted."""
        return not self._unknown & set(self._rest)

    @property
    def _rest(self) -> list[str]:
        """This part and the later ones."""
        names = [*self._parts]
        return names[names.index(self._part) :] if self._part in names else []

    @property
    def share(self) -> float:
        """How much is done, from 0 to 1: of the time, and never less than before."""
        passed = self._clock() - self._start
        whole = passed + self.left
        self._shown = max(self._shown, passed / whole if whole > 0 else 0.0)
        return self._shown
