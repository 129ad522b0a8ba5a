"""What a job will take, before its work starts."""
