"""A recipe: the Python file in which a user says what to fit, and what is done with it."""
