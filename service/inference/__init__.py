"""A bundle's graph and posterior -> predictions: onnxruntime sessions, checks of the graph, and the predictor."""
