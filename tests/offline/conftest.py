"""For every test of the offline job: what an export repeats without need is done once a process."""

from tests.support.short_fits import operators_read_once, short_fits, without_export

__all__ = ["operators_read_once", "short_fits", "without_export"]
