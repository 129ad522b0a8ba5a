"""Connections: uvicorn's HTTP/1.1 protocol with bounds on the size, the time and the pace of what clients send."""
