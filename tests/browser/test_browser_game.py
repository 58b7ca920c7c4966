"""A game in a browser, on another origin, uses the scoreboard; a page of a third origin cannot."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser

from tests.e2e.test_readiness import ServedInstance, serve

# Registers, reads an error with its headers, and waits for the first event of the stream.
PLAY = """
async (api) => {
  const call = async (method, path, body, token) => {
    const response = await fetch(api + path, {
      method,
      headers: {
        ...(body && {"Content-Type": "application/json"}),
        ...(token && {"Authorization": "Bearer " + token}),
      },
      body: body && JSON.stringify(body),
    });
    const header = (name) => response.headers.get(name);
    return {
      status: response.status,
      body: await response.json(),
      requestId: header("X-Request-Id"),
      remaining: header("RateLimit-Remaining"),
      reset: header("RateLimit-Reset"),
      retryAfter: header("Retry-After"),
    };
  };
  const account = {username: "ana_99", email: "ana@example.com", password: "a long pass phrase"};
  const registered = await call("POST", "/auth/register", account);
  const token = registered.body.tokens.access_token;
  const claim = {action_token: "forged", score_delta: 1};
  let claimed;
  do claimed = await call("PATCH", "/scores", claim, token); while (claimed.status === 400);
  const stream = new EventSource(api + "/leaderboard/stream");
  const event = await new Promise((resolve, reject) => {
    stream.addEventListener("leaderboard", resolve);
    stream.onerror = reject;
  });
  stream.close();
  return {registered, claimed, update: JSON.parse(event.data)};
}
"""
PROBE = """
async (api) => {
  try {
    return (await fetch(api + "/leaderboard")).status;
  } catch (error) {
    return error.name;
  }
}
"""


class EmptyPage(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>A game</title>")

    def log_message(self, *_: object) -> None: ...


@contextmanager
def page_server() -> Iterator[str]:
    """Serve an empty page on an origin of its own."""
    with ThreadingHTTPServer(("127.0.0.1", 0), EmptyPage) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def game() -> Iterator[str]:
    with page_server() as origin:
        yield origin


@pytest.fixture
def scoreboard(game: str, tmp_path: Path) -> Iterator[ServedInstance]:
    with serve(tmp_path, backends="scoreboard", TALLY_CORS_ORIGINS=game) as instance:
        yield instance


async def evaluate(browser: Browser, origin: str, script: str, api: str) -> Any:
    page = await browser.new_page()
    await page.goto(origin)
    try:
        return await page.evaluate(script, api)
    finally:
        await page.close()


async def test_a_browser_game_on_another_origin_can_use_the_scoreboard(
    browser: Browser, game: str, scoreboard: ServedInstance
) -> None:
    """With preflights, a bearer token, the stream, and errors with their headers."""
    api = f"{scoreboard.url}/scoreboard/api/v1"
    played = await evaluate(browser, game, PLAY, api)
    assert (played["registered"]["status"], played["registered"]["remaining"]) == (201, "9")
    claimed = played["claimed"]
    assert (claimed["status"], claimed["body"]["code"]) == (429, "rate_limit_exceeded")
    assert claimed["body"]["requestId"] == claimed["requestId"]
    assert (claimed["remaining"], int(claimed["retryAfter"]) >= 1) == ("0", True)
    assert int(claimed["reset"]) >= int(claimed["retryAfter"])
    assert [entry["username"] for entry in played["update"]["leaderboard"]] == ["ana_99"]
    with page_server() as other:
        assert await evaluate(browser, other, PROBE, api) == "TypeError", "the browser refused"
    assert await evaluate(browser, game, PROBE, api) == 200
