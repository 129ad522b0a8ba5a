"""The other servers' batching: standard library only, since both sides read it."""

BATCH, DELAY_SECONDS = 64, 0.002
