"""Keyrings: the first key signs, all verify, and an id gives nothing away."""

import pytest

from tally.kit.keyring import Key, Keyring
from tally.settings import Secret

OLD, NEW = (
    Secret("the old key of at least 32 characters"),
    Secret("the new key of at least 32 characters"),
)


def test_the_first_key_signs_and_all_are_found() -> None:
    ring = Keyring([NEW, OLD])
    assert ring.signing == Key.of(NEW)
    assert ring.get(Key.of(OLD).key_id) == Key.of(OLD)
    assert ring.get("unheard of") is None


def test_a_key_that_was_taken_away_is_not_found() -> None:
    assert Keyring([NEW]).get(Key.of(OLD).key_id) is None


def test_two_keys_never_sign_alike_and_one_always_does() -> None:
    old, new = Key.of(OLD), Key.of(NEW)
    assert old.key_id != new.key_id
    assert old.signature(b"x") == Key.of(OLD).signature(b"x") != new.signature(b"x")


def test_a_key_never_shows_itself() -> None:
    key = Key.of(OLD)
    assert key.reveal().hex() not in repr(key)
    assert OLD.reveal() not in repr(key)


def test_a_ring_without_keys_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Keyring([])
