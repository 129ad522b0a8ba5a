"""For every test of the commands and of the package: what an export repeats without need is done once a process."""

from tests.support.short_fits import operators_read_once, short_fits

__all__ = ["operators_read_once", "short_fits"]
