"""Handwritten digits (MNIST, LeCun, Cortes and Burges): classification of images of 28 x 28 pixels.

    demur fit examples/mnist.py --out bundles/mnist

The first run downloads 12 MB to `data/mnist`.
"""

from idx_images import CALIBRATION, SIZE, TEST, TRAIN, Data, IdxImages, not_such_images, trained
from torch import nn

from demur import FitConfig, ImagePreprocessing, InputSpec

config = FitConfig(name="mnist", seed=0)
class_names = [str(digit) for digit in range(10)]
input_spec = InputSpec(shape=(1, SIZE, SIZE), image=ImagePreprocessing(mode="L", scale=1 / 255, resize=True))
DIGITS = IdxImages(
    "mnist",
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    {
        "train-images-idx3": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "train-labels-idx1": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "t10k-images-idx3": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "t10k-labels-idx1": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    },
)


def train_data() -> Data:
    return DIGITS.read("train", TRAIN)


def calibration_data() -> Data:
    return DIGITS.read("t10k", CALIBRATION)


def test_data() -> Data:
    return DIGITS.read("t10k", TEST)


def foreign_data() -> Data:
    return not_such_images(test_data())


def model() -> nn.Module:
    return trained(train_data())
