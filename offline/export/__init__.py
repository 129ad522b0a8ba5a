"""The network and its Jacobian as one ONNX graph, verified with the serving code."""
