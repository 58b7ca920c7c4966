"""Who can log in: a few made-up people, and whoever else names themselves.

A person's `sub` follows from the e-mail address, so that somebody who comes back after a restart is
still the same.
"""

import re
import uuid
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

NAMESPACE: Final = uuid.UUID("5f0f7d0e-3c0f-4a52-9e0b-0f6a2c7a3d11")
DOMAIN: Final = "example.test"


class OidcUser(msgspec.Struct, frozen=True):
    sub: str
    email: str
    name: str
    groups: tuple[str, ...] = ()


def make_user(name: str, groups: tuple[str, ...] = ()) -> OidcUser:
    """Somebody known by a name or an e-mail address."""
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
    """The user pool: everyone who has an account."""

    def __init__(self, users: Iterable[OidcUser] = DEFAULT_USERS) -> None:
        self._by_sub = {person.sub: person for person in users}

    def __iter__(self) -> Iterator[OidcUser]:
        return iter(self._by_sub.values())

    def add(self, person: OidcUser) -> OidcUser:
        self._by_sub[person.sub] = person
        return person

    def find(self, who: str) -> OidcUser | None:
        """By `sub`, e-mail address or name."""
        by_sub = self._by_sub.get(who)
        return by_sub or next(
            (each for each in self._by_sub.values() if who in {each.email, each.name}), None
        )

    def find_or_add(self, who: str) -> OidcUser:
        """Somebody new gets an account: that is what sign-up is for."""
        return self.find(who) or self.add(make_user(who))

    def remove(self, sub: str) -> bool:
        return self._by_sub.pop(sub, None) is not None
