"""Articles of clothing (Fashion-MNIST, Xiao, Rasul and Vollgraf): classification of images of 28 x 28 pixels.

    demur fit examples/fashion_mnist.py --out bundles/fashion-mnist

The first run downloads 31 MB to `data/fashion-mnist`.
"""

from idx_images import CALIBRATION, SIZE, TEST, TRAIN, Data, IdxImages, not_such_images, trained
from torch import nn

from demur import FitConfig, ImagePreprocessing, InputSpec

config = FitConfig(name="fashion-mnist", seed=0)
class_names = ["T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "ankle boot"]
input_spec = InputSpec(shape=(1, SIZE, SIZE), image=ImagePreprocessing(mode="L", scale=1 / 255, resize=True))
CLOTHES = IdxImages(
    "fashion-mnist",
    "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion",
    {
        "train-images-idx3": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "train-labels-idx1": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "t10k-images-idx3": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "t10k-labels-idx1": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    },
)


def train_data() -> Data:
    return CLOTHES.read("train", TRAIN)


def calibration_data() -> Data:
    return CLOTHES.read("t10k", CALIBRATION)


def test_data() -> Data:
    return CLOTHES.read("t10k", TEST)


def foreign_data() -> Data:
    return not_such_images(test_data())


def model() -> nn.Module:
    return trained(train_data())
