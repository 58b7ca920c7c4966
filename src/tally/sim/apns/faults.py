"""What can go wrong on the way to the simulated push service, arranged beforehand.

apns.faults.add(PushFault(status=503, reason="ServiceUnavailable", times=20))
apns.faults.add(PushFault(token=token, status=410, reason="Unregistered", times=None))
apns.faults.add(PushFault(cut="after"))          # Apple has it, and nobody is told
apns.faults.add(PushFault(goaway="abrupt", skip=100))
"""

import asyncio
from typing import Annotated, Literal, TypeAlias

import msgspec

Seconds: TypeAlias = Annotated[float, msgspec.Meta(ge=0)]


class PushFault(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """One thing that goes wrong, after `skip` requests that it lets pass; `times` often, or for ever where that is None."""

    # Requests for this token or channel; any where there is none.
    token: str | None = None
    path: str = "/"
    skip: Annotated[int, msgspec.Meta(ge=0)] = 0
    times: Annotated[int, msgspec.Meta(ge=1)] | None = 1
    # Seconds of the simulator's clock before anything else happens.
    delay: Seconds = 0
    # An answer instead of the right one.
    status: Annotated[int, msgspec.Meta(ge=200, le=599)] | None = None
    reason: str = ""
    retry_after: int | None = None
    # The connection is cut: before the push is taken, or after it.
    cut: Literal["before", "after"] | None = None
    # The stream alone is reset: as one that was never looked at, or as one that failed.
    reset: Literal["refused", "failed"] | None = None
    # The connection is given up: all it has seen is answered, or this push and later ones are not.
    goaway: Literal["graceful", "abrupt"] | None = None

    def fits(self, path: str, target: str) -> bool:
        return self.token in {None, target} and path.startswith(self.path)


class PushFaultInjector:
    """The faults that are still to come; the first that fits is taken."""

    def __init__(self) -> None:
        self.pending: list[PushFault] = []
        # Set whenever a fault has struck.
        self.taken = asyncio.Event()

    def add(self, fault: PushFault) -> None:
        self.pending.append(fault)

    def clear(self) -> None:
        self.pending.clear()

    def take(self, path: str, target: str) -> PushFault | None:
        for place, fault in enumerate(self.pending):
            if not fault.fits(path, target):
                continue
            if fault.skip:
                self.pending[place] = msgspec.structs.replace(fault, skip=fault.skip - 1)
                continue
            if fault.times is not None:
                left = fault.times - 1
                self.pending[place : place + 1] = (
                    [msgspec.structs.replace(fault, times=left)] if left else []
                )
            self.taken.set()
            return fault
        return None
