"""Every experiment by name."""

from functools import partial

from benchmarks.core.settings import Benchmark
from paper.gaps import plot as gaps_plot
from paper.gaps import run as gaps
from paper.images import plot as images_plot
from paper.images import run as images
from paper.images import sizes, sizes_plot
from paper.tables import plot as uci_plot
from paper.tables import run as uci
from paper.toys import plot as toy_plot
from paper.toys import run as toy

HOURS = "hours, and data, given or downloaded"
EXPERIMENTS = (
    Benchmark(
        "mnist",
        "rotated MNIST: every method at every angle, and Fashion-MNIST",
        partial(images.run, "mnist"),
        images_plot.draw,
        needs=HOURS,
        fast=True,
    ),
    Benchmark(
        "cifar",
        "corrupted CIFAR-10: every method at every level, and SVHN or CIFAR-100",
        partial(images.run, "cifar"),
        images_plot.draw,
        needs=HOURS,
        fast=True,
    ),
    Benchmark(
        "mnist_resnet50",
        "rotated MNIST with ResNet-50, at full size only: on a GPU",
        partial(images.run, "mnist", deep="ResNet-50, grey"),
        images_plot.draw,
        needs=HOURS,
    ),
    Benchmark(
        "cifar_resnet50",
        "corrupted CIFAR-10 with ResNet-50, at full size only: on a GPU",
        partial(images.run, "cifar", deep="ResNet-50"),
        images_plot.draw,
        needs=HOURS,
    ),
    Benchmark(
        "sizes",
        "figure 5 and appendix A.1: subnetworks and ensembles of growing size",
        sizes.run,
        sizes_plot.draw,
        needs=HOURS,
        fast=True,
    ),
    Benchmark(
        "toy",
        "toys: predictive uncertainty that each method preserves of the full network's",
        toy.run,
        toy_plot.draw,
        threads=1,
        needs="minutes, and data, given or downloaded",
        fast=True,
    ),
    Benchmark(
        "uci",
        "UCI tables: subnetworks of large networks against full covariances of small ones",
        uci.run,
        uci_plot.draw,
        threads=1,
        needs=HOURS,
        fast=True,
    ),
    Benchmark(
        "gaps",
        "regressions with a gap: 95 % intervals and rejection inside it, of posteriors, an ensemble and bundles",
        gaps.run,
        gaps_plot.draw,
        threads=1,
        needs="minutes, and data, given or downloaded",
        fast=True,
    ),
)
