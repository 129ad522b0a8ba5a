"""Memory and time of a job, estimated before its work starts."""
