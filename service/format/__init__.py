"""The parts of the bundle's format. Import them through `demur.service.bundle`."""
