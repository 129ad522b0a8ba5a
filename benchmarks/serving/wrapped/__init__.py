"""The digits' predictor wrapped by hand in other servers, as their documentation shows; run with each one's own Python.

Each reads the environment: SERVED_BUNDLE (a folder), SERVED_WORKERS, SERVED_THREADS and SERVED_PORT.
"""
