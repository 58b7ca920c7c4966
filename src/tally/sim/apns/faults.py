"""Fault injection for the push and management ports.

apns.faults.add(PushFault(status=503, reason="ServiceUnavailable", times=20))
apns.faults.add(PushFault(token=token, status=410, reason="Unregistered", times=None))
apns.faults.add(PushFault(cut="after"))          # accepted, but not acknowledged
apns.faults.add(PushFault(goaway="abrupt", skip=100))
"""

import asyncio
from typing import Annotated, Literal, TypeAlias

import msgspec

Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]


class PushFault(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """A fault for `times` matching requests (None: all) after skipping the first `skip`.

    One field per condition and effect of the control API, hence more than eight.
    """

    # Match this token or channel; None matches any.
    token: str | None = None
    path: str = "/"
    skip: Annotated[int, msgspec.Meta(ge=0)] = 0
    times: Annotated[int, msgspec.Meta(ge=1)] | None = 1
    # Seconds on the simulator's clock before anything else happens.
    delay: Seconds = 0
    # Respond with this error instead.
    status: Annotated[int, msgspec.Meta(ge=200, le=599)] | None = None
    reason: str = ""
    retry_after: int | None = None
    # Drop the connection before or after the push is accepted.
    cut: Literal["before", "after"] | None = None
    # Reset the stream with REFUSED_STREAM or INTERNAL_ERROR.
    reset: Literal["refused", "failed"] | None = None
    # Send GOAWAY: graceful completes all open streams, abrupt drops this one and later ones.
    goaway: Literal["graceful", "abrupt"] | None = None

    def matches(self, path: str, target: str) -> bool:
        return self.token in {None, target} and path.startswith(self.path)


class PushFaultInjector:
    """The pending faults; the first match applies."""

    def __init__(self) -> None:
        self.pending: list[PushFault] = []
        # Set whenever a fault was applied.
        self.applied = asyncio.Event()

    def add(self, fault: PushFault) -> None:
        self.pending.append(fault)

    def clear(self) -> None:
        self.pending.clear()

    def take(self, path: str, target: str) -> PushFault | None:
        for index, fault in enumerate(self.pending):
            if not fault.matches(path, target):
                continue
            if fault.skip:
                self.pending[index] = msgspec.structs.replace(fault, skip=fault.skip - 1)
                continue
            if fault.times is not None:
                remaining = fault.times - 1
                self.pending[index : index + 1] = (
                    [msgspec.structs.replace(fault, times=remaining)] if remaining else []
                )
            self.applied.set()
            return fault
        return None
