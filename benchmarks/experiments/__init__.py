"""What predictions, scores, guarantees and the test for drift are worth. Some take hours."""
