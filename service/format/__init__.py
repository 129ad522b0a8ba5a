"""The parts of the bundle's format; `service.bundle` is their one door."""
