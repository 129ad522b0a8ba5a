"""`auto`: compare candidates on a small scale and keep the best."""
