"""What carries a job: checkpoints, processes, progress, memory."""
