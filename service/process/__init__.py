"""A process that serves: its server and signals, and the supervisor of several."""
