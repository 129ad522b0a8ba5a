"""Networks in ONNX that other people made: what is found in them, and how they are served."""
