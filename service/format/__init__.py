"""The parts of the bundle's format. Import them through `probity.service.bundle`."""
