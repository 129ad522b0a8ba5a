"""service/feedback/receipts.py: only what one of the secrets signed is taken, unchanged and in time."""

import hashlib
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from itsdangerous import TimestampSigner
from itsdangerous.encoding import base64_encode

from demur.service.feedback import receipts
from demur.service.feedback.receipts import ReceiptError, ReceiptSigner, SecretFileError, read_secrets
from tests.support.secrets import OTHER_SECRET, SECRET, secret_file

ONE, OTHER = SECRET.encode(), OTHER_SECRET.encode()
DIGEST = "0123456789abcdef" * 4
AGE, SIGNED_AT = 1000.0, 1_700_000_000.0
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
# Of a model's name and version: what a manifest can hold, and no NUL.
WORDS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=50)


def signer(*secrets: bytes) -> ReceiptSigner:
    return ReceiptSigner(secrets or [ONE], AGE)


def forged(value: bytes, secret: bytes = ONE, salt: bytes = receipts.SALT) -> str:
    """Signed as receipts are, whatever it is."""
    return TimestampSigner(secret, salt, key_derivation="hmac", digest_method=hashlib.sha256).sign(value).decode()


@given(WORDS, WORDS, st.binary(max_size=300))
def test_a_receipt_opens_to_what_was_signed(name: str, version: str, answers: bytes) -> None:
    receipt = signer().sign(name, version, DIGEST, answers)
    assert re.fullmatch(r"[\w-]+\.[\w-]+\.[\w-]+", receipt, re.ASCII)
    found = signer().open(receipt)
    assert (found.name, found.version, found.answers) == (name, version, answers)
    assert found.digest == DIGEST[:16]


def test_equal_answers_of_one_moment_have_receipts_of_their_own() -> None:
    one = signer()
    given_out = [one.sign("digits", "1", DIGEST, bytes(6)) for _ in range(1000)]
    assert len({one.open(receipt).identity for receipt in given_out}) == 1000


def test_the_size_of_a_receipt() -> None:
    """A classification of at most 256 classes takes 6 bytes an example, one of at most 65,536 takes 7."""
    assert len(signer().sign("fashion-mnist", "2024.1", DIGEST, bytes(7))) <= 150
    assert len(signer().sign("digits", "1", DIGEST, bytes(6))) < 100
    assert len(signer().sign("digits", "1", DIGEST, bytes(32 * 7))) < 400


def test_a_change_of_any_character_is_noticed() -> None:
    """But for the last two bits of the last character, which the signature does not use: the identity stays then."""
    receipt = signer().sign("digits", "1", DIGEST, bytes(range(60)))
    identity = signer().open(receipt).identity
    for place, character in enumerate(receipt):
        for change in (1, 4, 32):
            where = ALPHABET.find(character)
            other = ALPHABET[where ^ change] if where >= 0 else "_"
            changed = receipt[:place] + other + receipt[place + 1 :]
            if place == len(receipt) - 1 and change < 4:
                assert signer().open(changed).identity == identity
            else:
                with pytest.raises(ReceiptError, match="expected the unchanged receipt of an answer"):
                    signer().open(changed)
        for changed in (receipt[:place], receipt[place + 1 :]):
            with pytest.raises(ReceiptError):
                signer().open(changed)


def test_a_signature_that_is_written_in_another_way_is_the_same_receipt() -> None:
    receipt = signer().sign("digits", "1", DIGEST, b"answers")
    value, _, signature = receipt.rpartition(".")
    again = f"{value}.{signature[:10]}!!{signature[10:]}"
    assert signer().open(again).identity == signer().open(receipt).identity


@pytest.mark.parametrize("text", ["", ".", "..", "a.b.c", "x" * 100_000, "é.ü.ß", "\ud800", "\0", "." * 1000, "=.=.="])
def test_other_texts_are_no_receipts(text: str) -> None:
    with pytest.raises(ReceiptError, match="expected the unchanged receipt") as caught:
        signer().open(text)
    assert len(f"{caught.value}") < 300


@given(st.text())
def test_no_text_is_an_error_of_another_kind(text: str) -> None:
    with pytest.raises(ReceiptError):
        signer().open(text)


@pytest.mark.parametrize(
    "receipt",
    [
        forged(base64_encode(b"name\0version\0" + bytes(30)), secret=OTHER),
        forged(base64_encode(b"name\0version\0" + bytes(30)), salt=b"another purpose"),
        forged(b""),
        forged(b"*"),
        forged(base64_encode(b"no separators")),
        forged(base64_encode(b"name\0no version")),
        forged(base64_encode(b"\xff\xfe\0version\0" + bytes(30))),
    ],
    ids=["another secret", "another purpose", "empty", "no base64", "no fields", "one field", "no text"],
)
def test_what_is_signed_and_no_receipt(receipt: str) -> None:
    with pytest.raises(ReceiptError, match="expected the unchanged receipt"):
        signer().open(receipt)


@given(st.binary(max_size=60))
def test_any_signed_bytes_are_a_receipt_or_refused(value: bytes) -> None:
    try:
        found = signer().open(forged(base64_encode(value)))
    except ReceiptError:
        return
    assert value.startswith(f"{found.name}\0{found.version}\0".encode() + bytes.fromhex(found.digest))


def test_a_receipt_ends_with_its_age() -> None:
    receipt = signer().sign("digits", "1", DIGEST, b"answers")
    signed_at = TimestampSigner(ONE).get_timestamp()

    def at(later: float) -> ReceiptSigner:
        return ReceiptSigner([ONE], AGE, lambda: signed_at + later)

    assert at(AGE - 5).open(receipt).answers == b"answers"
    with pytest.raises(ReceiptError, match=r"which is 10\d\d s old, expected 1000 s at most"):
        at(AGE + 5).open(receipt)
    # The clock of the replica that signed was ahead.
    assert at(-60).open(receipt).answers == b"answers"


def test_the_first_secret_signs_and_all_are_taken() -> None:
    before, during, after = signer(ONE), signer(OTHER, ONE), signer(OTHER)
    old, new = (which.sign("digits", "1", DIGEST, b"answers") for which in (before, during))
    for receipt in (old, new):
        assert during.open(receipt).answers == b"answers"
    assert after.open(new).answers == b"answers"
    for which, receipt in ((before, new), (after, old)):
        with pytest.raises(ReceiptError):
            which.open(receipt)


def test_a_file_has_a_secret_in_each_line(tmp_path: Path) -> None:
    assert read_secrets(secret_file(tmp_path)) == [ONE]
    assert read_secrets(secret_file(tmp_path, OTHER_SECRET, "", f"{SECRET} \r", "")) == [OTHER, ONE]
    (tmp_path / "bytes").write_bytes(b"\xff" * 32)
    assert read_secrets(tmp_path / "bytes") == [b"\xff" * 32]


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "found no secret"),
        (b"\n\n", "found no secret"),
        (b"s" * 31, "line 1: found 31 bytes"),
        (b"s" * 32 + b"\nkey\n", "line 2: found 3 bytes"),
        (b"s" * (2**16 + 1), "found more than 65536 bytes"),
    ],
)
def test_a_file_that_is_refused(tmp_path: Path, content: bytes, found: str) -> None:
    file = tmp_path / "secret"
    file.write_bytes(content)
    with pytest.raises(SecretFileError, match=re.escape(found)) as caught:
        read_secrets(file)
    assert (
        "expected a secret of at least 32 bytes in each line; write one with `openssl rand -hex 32" in f"{caught.value}"
    )
    assert not content or b"sss" not in f"{caught.value}".encode()


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for file, reason in ((tmp_path / "none", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(SecretFileError, match=rf"{re.escape(str(file))}: cannot be read \({reason}\), expected"):
            read_secrets(file)
