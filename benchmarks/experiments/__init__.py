"""Which weights to choose: experiments on toys, UCI tables and MNIST. They take hours."""
