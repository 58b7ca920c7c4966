"""The first key of a keyring signs, all keys verify, and an ID does not reveal the key."""

import pytest

from tally.kit.keyring import Key, Keyring
from tally.settings import Secret

OLD, NEW = (
    Secret("the old key of at least 32 characters"),
    Secret("the new key of at least 32 characters"),
)


def test_the_first_key_signs_and_all_keys_are_found() -> None:
    ring = Keyring([NEW, OLD])
    assert ring.signing == Key.of(NEW)
    assert ring.get(Key.of(OLD).key_id) == Key.of(OLD)
    assert ring.get("unknown") is None


def test_a_removed_key_is_not_found() -> None:
    assert Keyring([NEW]).get(Key.of(OLD).key_id) is None


def test_signatures_depend_on_the_key_alone() -> None:
    old, new = Key.of(OLD), Key.of(NEW)
    assert old.key_id != new.key_id
    assert old.signature(b"x") == Key.of(OLD).signature(b"x") != new.signature(b"x")


def test_the_repr_does_not_contain_the_key() -> None:
    key = Key.of(OLD)
    assert key.reveal().hex() not in repr(key)
    assert OLD.reveal() not in repr(key)


def test_an_empty_keyring_is_rejected() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Keyring([])
