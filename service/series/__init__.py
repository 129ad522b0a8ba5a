"""What is counted of the answers of one model: its metrics, and the tests for drift and accuracy."""
