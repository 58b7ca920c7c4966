"""The users of a pool: a few predefined ones and anyone who logs in with a new name.

The `sub` is derived from the e-mail address, so users keep their identity across restarts.
"""

import re
import uuid
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

NAMESPACE: Final = uuid.UUID("5f0f7d0e-3c0f-4a52-9e0b-0f6a2c7a3d11")
DOMAIN: Final = "example.test"


class OidcUser(msgspec.Struct, frozen=True):
    """A user with an account."""

    sub: str
    email: str
    name: str
    groups: tuple[str, ...] = ()


def make_user(name: str, groups: tuple[str, ...] = ()) -> OidcUser:
    """Build a user from a name or an e-mail address."""
    name = name.strip()
    local = re.sub(r"\W+", ".", name.casefold()).strip(".") or "somebody"
    email = name.casefold() if "@" in name else f"{local}@{DOMAIN}"
    return OidcUser(str(uuid.uuid5(NAMESPACE, email)), email, name, groups)


DEFAULT_USERS: Final = (
    make_user("Ana Silva"),
    make_user("Bo Lindqvist"),
    make_user("Chidi Okafor"),
    make_user("Dana Weiss", ("admin",)),
)


class UserDirectory:
    """All users with an account."""

    def __init__(self, users: Iterable[OidcUser] = DEFAULT_USERS) -> None:
        self._by_sub = {user.sub: user for user in users}

    def __iter__(self) -> Iterator[OidcUser]:
        return iter(self._by_sub.values())

    def add(self, user: OidcUser) -> OidcUser:
        self._by_sub[user.sub] = user
        return user

    def find(self, identifier: str) -> OidcUser | None:
        """Find a user by `sub`, e-mail address or name."""
        by_sub = self._by_sub.get(identifier)
        return by_sub or next(
            (user for user in self._by_sub.values() if identifier in {user.email, user.name}), None
        )

    def find_or_add(self, identifier: str) -> OidcUser:
        """Find a user, or sign up a new one."""
        return self.find(identifier) or self.add(make_user(identifier))

    def remove(self, sub: str) -> bool:
        return self._by_sub.pop(sub, None) is not None
