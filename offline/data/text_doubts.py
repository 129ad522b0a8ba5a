"""What a fit warns of where texts are served: unknown tokens, and answers that follow the filling."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from demur.service.format.manifest_input import TokenKind
from demur.service.inference.texts import tokenizer_of

from ..network.inputs import InputForm
from ..network.model_copy import private_copy
from ..network.outputs import OutputForm
from ..runtime.arrays import Array
from .texts import TextEncoder

FEW = 8  # texts that are tried
ALLOWED = 1e-2  # difference relative to the largest output
# What networks raise of inputs that they do not take, torch's and onnxruntime's own among them.
REFUSED = (RuntimeError, ValueError, IndexError, AssertionError)

Numbers = Mapping[TokenKind, Array]


def text_doubts(
    model: nn.Module, form: OutputForm, takes: InputForm, encoder: TextEncoder, texts: Sequence[str]
) -> list[str]:
    """Warnings on a network that takes these texts as `encoder` makes tokens of them; the model itself is not touched.

    On the CPU, where a token beyond the table of a network is an error and not the end of all work.
    """
    tried = _Tried(private_copy(model, torch.device("cpu")), form, takes, encoder)
    numbers = encoder.reader.read(list(texts[:FEW]), "texts").numbers
    return [*tried.unknown_token(numbers), *tried.filling(numbers)]


@dataclass(frozen=True)
class _Tried:
    network: nn.Module
    form: OutputForm
    takes: InputForm
    encoder: TextEncoder

    def outputs(self, numbers: Numbers) -> Tensor | None:
        """(B, K) for tokens of any length, (B, L) of each kind; None where the network does not take them."""
        names, takes = self.encoder.takes, self.takes
        if names is None or takes.parts is None:
            given = torch.as_tensor(numbers["ids"])
        else:
            rows = [torch.as_tensor(numbers[names[part.name]]) for part in takes.parts]
            given = torch.cat(rows, dim=1).float()
            takes = replace(takes, parts=tuple(replace(part, shape=(rows[0].shape[1],)) for part in takes.parts))
        args, named = takes.arguments(given)
        try:
            with torch.no_grad():
                return self.form.take(self.network(*args, **named))
        except REFUSED:
            return None

    def unknown_token(self, numbers: Numbers) -> list[str]:
        """Where the tokenizer's last token is none of the network's."""
        last = max(tokenizer_of(self.encoder.reader.data).get_vocab(with_added_tokens=True).values())
        ids = numbers["ids"].copy()
        ids[:, numbers["mask"].argmax(axis=1)] = last
        if self.outputs({**numbers, "ids": ids}) is not None or self.outputs(numbers) is None:
            return []
        return [
            f"the tokenizer has tokens up to number {last}, for which the network fails: a text with such a token gets "
            "no answer; give the tokenizer that the network was trained with, or call "
            "network.resize_token_embeddings(len(tokenizer)) and train it with these tokens"
        ]

    def filling(self, numbers: Numbers) -> list[str]:
        """Where a text that is filled to the bundle's length is answered otherwise than the text itself."""
        differences, largest = [0.0], 0.0
        for row, there in enumerate(numbers["mask"].astype(bool)):
            # Twice, since some networks drop the axis of a batch of one.
            filled = self.outputs({kind: each[[row, row]] for kind, each in numbers.items()})
            alone = self.outputs({kind: each[[row, row]][:, there] for kind, each in numbers.items()})
            if filled is None or alone is None:
                return []
            differences.append(float((filled - alone).abs().max()))
            largest = max(largest, float(filled.abs().max()))
        if not max(differences) > ALLOWED * largest:
            return []
        length = self.encoder.reader.length
        return [
            f"the network's answer depends on how far a text is filled: of {length} tokens, to which the bundle fills, "
            f"an output differs by up to {max(differences):.2g} from that of the text's own; train it with texts "
            f"filled to {length} tokens (padding='max_length'), or give it the mask, and positions where texts are "
            "filled on the left"
        ]
