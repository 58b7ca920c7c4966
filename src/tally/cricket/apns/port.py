"""What the backend may ask of Apple's push service; `gateway.ApnsGateway` does it."""

from collections.abc import AsyncGenerator, AsyncIterable, Sequence
from typing import Protocol

from tally.cricket.apns.model import Channel, Priority, Push, Verdict


class Apns(Protocol):
    """Pushes to tokens, and broadcasts to channels.

    Never raises for what Apple or the network answer: that is in the verdict.
    """

    @property
    def is_configured(self) -> bool:
        """Whether there is a key; without one every verdict is a RETRY with the reason NotConfigured, and nothing is sent."""

    async def send(self, push: Push) -> Verdict:
        """Send one push, and try again with back-off within the gateway's patience (some seconds) what may pass.

        Tried again are 429, 500, 503, broken connections and time-outs: Apple may then have had it
        already, so a device can get it twice, with the same `apns_id`. Pushes to one token go in
        the order of the calls, one after another. A state (`Push.is_state`) that waits for its next
        try gives way to a newer push for the same token: SUPERSEDED.
        """

    def send_all(
        self, pushes: AsyncIterable[Push], concurrency: int | None = None
    ) -> AsyncGenerator[tuple[Push, Verdict], None]:
        """Each push with its verdict, as they come in, not in order; made for a hundred thousand.

        `pushes` is read only as fast as answers are taken: at most `concurrency` (or as many as the
        connections carry) are under way, and no more than twice as many are in memory. Each push is
        handled as by `send`. Where you do not read to the end, close the generator
        (`contextlib.aclosing`). An error of `pushes` is raised after the verdicts of what is under
        way.
        """

    async def broadcast(
        self, channel_id: str, payload: bytes, *, priority: Priority, expiration: int = 0
    ) -> Verdict:
        """Send an update or an end to everyone who subscribes to a channel.

        TOKEN_INVALID: there is no such channel (any more).

        Broadcasts to one channel go in the order of the calls, and a waiting one gives way to a
        newer one, as states do.
        """

    async def create_channel(self, *, keeps_latest: bool = True) -> str:
        """The id of a new channel.

        All four: Unavailable where Apple is away or not configured, Conflict where it refuses.
        """

    async def delete_channel(self, channel_id: str) -> bool:
        """Whether there was one; the end of a match."""

    async def read_channel(self, channel_id: str) -> Channel | None:
        """The channel, or None if there is none (any more)."""

    async def list_channels(self) -> Sequence[str]:
        """The ids of all channels of the app: at most 10,000."""
