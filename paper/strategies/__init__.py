"""Rules for choosing weights that the paper's experiments compare, and that no fit uses."""
