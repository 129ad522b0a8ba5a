"""`auto`: compare candidates in small and keep the best."""
