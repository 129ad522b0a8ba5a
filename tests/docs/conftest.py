"""For every test of the pages: what an export repeats without need is done once a process."""

from tests.support.short_fits import operators_read_once

__all__ = ["operators_read_once"]
