"""Requests and responses: middleware, bodies within limits, problem details, and clients that disconnect."""
