"""What was sealed opens with the same key, purpose and context, and with nothing else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tally.kit.encryption import DecryptionError, Encryptor
from tally.settings import Secret

SECRET = Secret("a" * 32)


@given(st.text(), st.text())
def test_what_was_sealed_opens_again(text: str, context: str) -> None:
    """Any text, in any context, and never in the clear."""
    sealer = Encryptor(SECRET, "tokens")
    try:
        sealed = sealer.encrypt(text, context)
    except UnicodeEncodeError:
        return  # a lone surrogate is no text that anyone stores
    assert sealer.decrypt(sealed, context) == text
    assert sealer.encrypt(text, context) != sealed


@pytest.mark.parametrize(
    ("secret", "purpose", "context"),
    [("b" * 32, "tokens", "ann"), ("a" * 32, "other", "ann"), ("a" * 32, "tokens", "bob")],
)
def test_another_key_purpose_or_context_opens_nothing(
    secret: str, purpose: str, context: str
) -> None:
    """A sealed text moved to another item is worth nothing there."""
    sealed = Encryptor(SECRET, "tokens").encrypt("secret", "ann")
    with pytest.raises(DecryptionError):
        Encryptor(Secret(secret), purpose).decrypt(sealed, context)


@pytest.mark.parametrize("sealed", ["", "x", "é", "AAAA", "A" * 100])
def test_what_was_never_sealed_does_not_open(sealed: str) -> None:
    """Whatever stands there, the error is the same."""
    with pytest.raises(DecryptionError):
        Encryptor(SECRET, "tokens").decrypt(sealed, "ann")


def test_a_changed_letter_is_noticed() -> None:
    """Nothing opens that is not whole."""
    sealer = Encryptor(SECRET, "tokens")
    sealed = sealer.encrypt("secret", "ann")
    changed = sealed[:20] + ("A" if sealed[20] != "A" else "B") + sealed[21:]
    with pytest.raises(DecryptionError):
        sealer.decrypt(changed, "ann")
