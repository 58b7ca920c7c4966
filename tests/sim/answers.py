"""What a test wants to know of an answer."""

from typing import Any

from pyreqwest.response import Response

from tally.sim.browser import redirect_target


async def told(response: Response) -> tuple[int, Any]:
    return response.status, await response.json()


def target(url: str, response: Response) -> str:
    """Where a redirect leads; it must be one."""
    assert response.status == 302
    return redirect_target(response, url)
