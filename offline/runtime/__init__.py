"""The runtime of a job: checkpoints, processes, progress, memory."""
