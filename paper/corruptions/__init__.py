"""CIFAR-10-C (Hendrycks and Dietterich, ICLR 2019), generated: `registry.CORRUPTIONS`."""
