"""`demur score`: predictions for a whole file of inputs, without a server and without torch."""
