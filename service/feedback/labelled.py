"""Which examples have been labelled already, of the receipts that came last."""

from collections import OrderedDict

import numpy as np

from .answers import Array

MOST_RECEIPTS, MOST_BYTES = 50_000, 2**24  # some 32 MiB at most: an entry takes some 300 bytes beside those counted


class LabelledExamples:
    """Remembers the receipts of the last labels, so many and with so many examples that their bits take `most_bytes`.

    What is forgotten, and what another process has counted, counts again.
    """

    def __init__(self, most_receipts: int = MOST_RECEIPTS, most_bytes: int = MOST_BYTES) -> None:
        self._most_receipts, self._most_bytes, self._bytes = most_receipts, most_bytes, 0
        self._bits = OrderedDict[bytes, bytes]()

    def add(self, receipt: bytes, known: Array) -> Array:
        """Note the examples whose label is `known`, (B,) bool; returns which of them had none, (B,) bool."""
        before = self._bits.pop(receipt, None)
        labelled = np.zeros_like(known)
        if before is not None:  # of no bytes, NumPy would make bits of whatever lies in memory
            labelled = np.unpackbits(np.frombuffer(before, np.uint8), count=len(known)).astype(bool)
        after = self._bits[receipt] = np.packbits(labelled | known).tobytes()
        self._bytes += len(after) - len(before or b"")
        while len(self._bits) > self._most_receipts or self._bytes > self._most_bytes:
            self._bytes -= len(self._bits.popitem(last=False)[1])
        new: Array = known & ~labelled
        return new
