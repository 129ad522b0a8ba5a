"""Which weights to choose: experiments on toys, UCI tables and MNIST. They take hours and need PROBITY_DATA_DIR."""
