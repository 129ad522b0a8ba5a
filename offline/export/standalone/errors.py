"""Why a standalone model was not written."""


class StandaloneError(ValueError):
    """A bundle cannot be written as one ONNX model, or not to this place."""
