"""How many streams somebody may have open on this server: so many for a player, so many for an address."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from tally.errors import RateLimited


class StreamSlots:
    """Counts open streams, and refuses one too many."""

    def __init__(self, per_user: int, per_address: int) -> None:
        self._limits = {"user": per_user, "address": per_address}
        self._open: Counter[tuple[str, str]] = Counter()

    @property
    def open(self) -> int:
        """How many streams are open here now."""
        return sum(count for (kind, _), count in self._open.items() if kind == "address")

    @contextmanager
    def taken(self, user_id: str | None, address: str) -> Iterator[None]:
        """Hold a place for as long as the stream lasts."""
        keys = [("address", address)] + ([("user", user_id)] if user_id is not None else [])
        for kind, who in keys:
            if self._open[kind, who] >= self._limits[kind]:
                limit = self._limits[kind]
                raise RateLimited(f"At most {limit} streams at once", retry_after=10, code="rate_limit_exceeded", limit=limit)
        self._open.update(keys)
        try:
            yield
        finally:
            self._open.subtract(keys)
            for key in keys:
                if not self._open[key]:
                    del self._open[key]
