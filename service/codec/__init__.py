"""What the client sent -> arrays, and predictions -> the JSON that answers. Knows nothing of HTTP."""
