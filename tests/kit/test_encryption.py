"""A ciphertext is decrypted only with the same key, purpose and context."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tally.kit.encryption import DecryptionError, Encryptor
from tally.settings import Secret

SECRET = Secret("a" * 32)


@given(st.text(), st.text())
def test_encrypted_text_is_decrypted(text: str, context: str) -> None:
    """Any text in any context; two ciphertexts of the same text differ."""
    encryptor = Encryptor(SECRET, "tokens")
    try:
        ciphertext = encryptor.encrypt(text, context)
    except UnicodeEncodeError:
        return  # a lone surrogate cannot be encoded
    assert encryptor.decrypt(ciphertext, context) == text
    assert encryptor.encrypt(text, context) != ciphertext


@pytest.mark.parametrize(
    ("secret", "purpose", "context"),
    [("b" * 32, "tokens", "ann"), ("a" * 32, "other", "ann"), ("a" * 32, "tokens", "bob")],
)
def test_another_key_purpose_or_context_fails(secret: str, purpose: str, context: str) -> None:
    """A ciphertext copied to another item cannot be decrypted there."""
    ciphertext = Encryptor(SECRET, "tokens").encrypt("secret", "ann")
    with pytest.raises(DecryptionError):
        Encryptor(Secret(secret), purpose).decrypt(ciphertext, context)


@pytest.mark.parametrize("ciphertext", ["", "x", "é", "AAAA", "A" * 100])
def test_invalid_ciphertext_fails(ciphertext: str) -> None:
    """Every invalid input raises the same error."""
    with pytest.raises(DecryptionError):
        Encryptor(SECRET, "tokens").decrypt(ciphertext, "ann")


def test_a_modified_ciphertext_fails() -> None:
    """AES-GCM authenticates the ciphertext."""
    encryptor = Encryptor(SECRET, "tokens")
    ciphertext = encryptor.encrypt("secret", "ann")
    changed = ciphertext[:20] + ("A" if ciphertext[20] != "A" else "B") + ciphertext[21:]
    with pytest.raises(DecryptionError):
        encryptor.decrypt(changed, "ann")


def test_stored_ciphertext_stays_readable() -> None:
    """Databases contain such ciphertexts: neither the key derivation nor the format may change."""
    stored = "EXu59aG7GuPNzVJ1zLeNfWt1CFa0OK4_39iGANzd5kHHaauCh2z5ZLZ-5Ss3kyoksj7FrWkc-GYXPDw="
    assert Encryptor(SECRET, "collect").decrypt(stored, "user 42") == (
        '["access","refresh",1794955689]'
    )
