"""The Open Inference Protocol over gRPC: a front of the HTTP service, with its pipeline, limits, keys and metrics."""
