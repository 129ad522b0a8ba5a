"""Texts and the tokenizer that users give -> what the network takes, and the bundle's tokenizer.json."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from demur.service.bundle import InputSpec, InputText, ManifestError
from demur.service.format.manifest_input import TokenKind
from demur.service.inference.texts import TextReader, check_texts, texts_of, tokenizer_of

from ..network.inputs import KINDS, argument_names

MOST_TOKENS = 512  # where the tokenizer itself cuts no shorter
COMPARED = 64  # texts
BLOCK = 1024  # texts at once
EXPECTED = "a fast tokenizer of transformers (AutoTokenizer.from_pretrained(...)), or a tokenizers.Tokenizer"


@dataclass(frozen=True)
class TextEncoder:
    """reader: cuts and fills to one length; takes: the network's arguments by name and what each holds, or None for the
    numbers of the tokens alone."""

    reader: TextReader
    takes: Mapping[str, TokenKind] | None

    @classmethod
    def of(cls, tokenizer: Any, texts: Sequence[str], network: nn.Module | None = None) -> "TextEncoder":
        """That of a user's tokenizer for a network; None: for any that takes tokens.

        The length is that which the network's file is for, or that to which the tokenizer fills, or else of the longest
        of these texts, at most that to which it cuts, that of the network's positions, or 512. Raises `TypeError` for
        anything but a tokenizer that a service can run, and `ValueError` for one that cannot fill, or that gives other
        tokens than its own file.
        """
        given = _Given.of(tokenizer)
        own: int | None = getattr(network, "input_length", None)
        reader = given.reader(given.length(texts, positions_of(network)) if own is None else own)
        for start in range(0, len(texts), BLOCK):
            given.check_alike(reader, texts[start : start + BLOCK])
        return cls(reader, None if network is None else given.taken_by(network))

    @classmethod
    def of_bundle(cls, reader: TextReader, spec: InputSpec) -> "TextEncoder":
        """As the bundle with this input spec was fitted."""
        assert spec.text is not None
        names = None if spec.parts is None else [part.name for part in spec.parts]
        return cls(reader, None if names is None else dict(zip(names, spec.text.takes, strict=True)))

    def encoded(self, texts: Sequence[str], where: str) -> Tensor | dict[str, Tensor]:
        """What the network takes, (B, L) int64 each; raises `TextError`."""
        numbers = self.reader.read(texts, where).numbers
        if self.takes is None:
            return torch.as_tensor(numbers["ids"])
        return {name: torch.as_tensor(numbers[kind]) for name, kind in self.takes.items()}


def positions_of(network: nn.Module | None) -> int | None:
    """The most tokens that a network of transformers has positions for; None where it does not say."""
    config = getattr(network, "config", None)
    found = getattr(config, "max_position_embeddings", None)
    if not isinstance(found, int) or found < 1:
        return None
    # Those of RoBERTa's kind begin behind the number of the token that fills.
    first = config.pad_token_id + 1 if "roberta" in str(getattr(config, "model_type", "")) else 0  # type: ignore[union-attr]
    return found - first


def texts_in(data: Any) -> list[Any] | None:
    """The texts of a pair (texts, targets); None for other data."""
    return texts_of(data[0]) if isinstance(data, tuple | list) and len(data) == 2 else None


def with_text(spec: InputSpec, tokenizer: Any, encoder: TextEncoder | None) -> tuple[InputSpec, bytes | None]:
    """The spec of an input that is made of texts, and tokenizer.json; without a tokenizer, the spec as it is, and None.

    encoder: that of the training data; None where these were tokens already. Raises `ValueError` for a network that
    takes anything but tokens, and as `TextEncoder.of`.
    """
    if tokenizer is None:
        return spec, None
    names = [piece.name or "input_ids" for piece in spec.pieces]
    kinds = [KINDS[name] for name in names if name in KINDS]
    if len(kinds) < len(names):
        expected = "'input_ids' alone, or with 'attention_mask' and 'token_type_ids'"
        raise ValueError(
            f"tokenizer: found a network with the inputs {', '.join(map(repr, names))}, expected {expected}"
        )
    try:
        spec = replace(spec, text=InputText(tuple(kinds)))
    except ManifestError as error:
        raise ValueError(f"tokenizer: {error}, as a tokenizer makes them") from None
    reader = _Given.of(tokenizer).reader(*spec.pieces[0].shape) if encoder is None else encoder.reader
    return spec, reader.data


@dataclass(frozen=True)
class _Given:
    """A user's tokenizer: its file, how it fills, and the most tokens of a text; fixed: the length to which it always
    fills, if any.

    cutting: how it cuts, where its file does not say; names: of the inputs that it makes; source: the tokenizer itself,
    or a copy without what earlier calls have left in it.
    """

    data: bytes
    filling: Mapping[str, Any]
    cutting: Mapping[str, Any]
    most: int
    fixed: int | None
    names: Sequence[str]
    source: Any

    @classmethod
    def of(cls, tokenizer: Any) -> "_Given":
        backend = getattr(tokenizer, "backend_tokenizer", tokenizer)
        if not callable(getattr(backend, "to_str", None)):
            raise TypeError(f"tokenizer: found {type(tokenizer).__name__}, expected {EXPECTED}")
        own, cut, cutting, most = backend.padding or {}, backend.truncation or {}, {}, MOST_TOKENS
        filling = {name: own[name] for name in ("direction", "pad_id", "pad_type_id", "pad_token") if name in own}
        if backend is not tokenizer:
            # How long its last call made texts is no setting, and asking it changes that: a copy is asked.
            tokenizer, own, cut = copy.deepcopy(tokenizer), {}, {}
            backend = tokenizer.backend_tokenizer
            backend.no_truncation()
            backend.no_padding()
            if tokenizer.pad_token is None:
                found = f"tokenizer: found {type(tokenizer).__name__} without a token that fills"
                raise ValueError(f"{found}, expected one; set tokenizer.pad_token, as for training")
            if getattr(tokenizer, "split_special_tokens", False):
                found = "tokenizer: found split_special_tokens=True, which its file cannot hold"
                raise ValueError(f"{found}; give the data as tokens, and leave it out")
            cutting = {"direction": tokenizer.truncation_side}
            filling = {
                "direction": tokenizer.padding_side,
                "pad_id": tokenizer.pad_token_id,
                "pad_type_id": tokenizer.pad_token_type_id,
                "pad_token": tokenizer.pad_token,
            }
            most = min(most, tokenizer.model_max_length)
        if not filling:
            raise ValueError(
                "tokenizer: found a Tokenizer that does not fill, expected one that does; call "
                "tokenizer.enable_padding(pad_id=..., pad_token=...), as for training"
            )
        names = list(getattr(tokenizer, "model_input_names", ("input_ids", "attention_mask")))
        longest = cut.get("max_length") or most
        return cls(backend.to_str().encode(), filling, cutting, longest, own.get("length"), names, tokenizer)

    def length(self, texts: Sequence[str], positions: int | None) -> int:
        """Of the inputs."""
        check_texts(texts, "train_loader, texts")
        if self.fixed is not None:
            return self.fixed
        most = self.most if positions is None else min(self.most, positions)
        whole, longest = tokenizer_of(self.data), 1
        whole.no_truncation()
        whole.no_padding()
        for start in range(0, len(texts), BLOCK):
            found = whole.encode_batch_fast(list(texts[start : start + BLOCK]))
            longest = max(longest, *(len(one.ids) for one in found))
            if longest >= most:
                return most
        return longest

    def reader(self, length: int) -> TextReader:
        """One that cuts and fills to this length."""
        tokenizer = tokenizer_of(self.data)
        own = {**(tokenizer.truncation or {}), **self.cutting}
        cut = min(own.pop("max_length", length), length)
        tokenizer.enable_truncation(max_length=cut, **own)
        tokenizer.enable_padding(length=length, **self.filling)
        return TextReader(tokenizer.to_str().encode(), length)

    def check_alike(self, reader: TextReader, texts: Sequence[str]) -> None:
        """`ValueError` where a tokenizer of transformers does more than its file says."""
        if not callable(self.source):
            return
        if reader.most < reader.length:  # it cannot be asked for both
            return
        options = {"truncation": True, "padding": "max_length", "max_length": reader.length}
        found = reader.read(texts, "texts").numbers["ids"].tolist()
        own = self.source(list(texts), **options)["input_ids"]
        place = next((i for i, (a, b) in enumerate(zip(found, own, strict=True)) if list(a) != list(b)), None)
        if place is not None:
            raise ValueError(
                f"tokenizer: found other tokens for {texts[place]!r:.60} than its own file gives, expected the same: "
                f"{type(self.source).__name__} has steps of its own; give the data as tokens, and leave it out"
            )

    def taken_by(self, network: nn.Module) -> Mapping[str, TokenKind] | None:
        """The network's arguments that hold tokens; None for one that takes one input."""
        known = {name: KINDS[name] for name in argument_names(network) if name in KINDS}
        makes = {KINDS[name] for name in self.names if name in KINDS}
        found = {name: kind for name, kind in known.items() if kind in makes}
        return found if len(found) > 1 and "ids" in found.values() else None
