"""Image classification under shift: rotated MNIST and corrupted CIFAR-10 (the section of that name in the paper)."""
