"""A bundle as one portable ONNX model. Needs onnx and onnxscript, not torch."""
