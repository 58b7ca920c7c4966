"""Helpers to inspect HTTP responses."""

from typing import Any

from pyreqwest.response import Response

from tally.sim.browser import redirect_target


async def status_and_json(response: Response) -> tuple[int, Any]:
    return response.status, await response.json()


def redirect_url(url: str, response: Response) -> str:
    """The target of a redirect; asserts that it is one."""
    assert response.status == 302
    return redirect_target(response, url)
