"""The documentation pages load only their own assets and explain every error code."""

import re
from collections.abc import AsyncIterator
from html.parser import HTMLParser
from urllib.parse import urljoin

import pytest
from pyreqwest.client import Client

from tally.error_codes import ERROR_CODES
from tally.kit.docs import docs_endpoints
from tally.kit.endpoints import ApiApplication
from tally.kit.server import serving
from tests.kit.serving import make_api


class Reader(HTMLParser):
    """Collects the text, IDs and links of a page, and checks that every element is closed."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text = ""
        self.ids: list[str] = []
        self.links: list[str] = []
        self.open: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.links += [value or "" for name, value in attrs if name in {"href", "src"}]
        if tag not in {"link", "meta"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
async def url() -> AsyncIterator[str]:
    async with serving(ApiApplication([make_api(*docs_endpoints(), name="")])) as url:
        yield url


@pytest.mark.parametrize("path", ["/docs", "/docs/errors"])
async def test_a_page_loads_only_its_own_assets(client: Client, url: str, path: str) -> None:
    """Its policy allows nothing else; assets are cached for a year under a hash."""
    response = await client.get(url + path).build().send()
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; connect-src 'self'")
    assert "frame-ancestors 'none'" in policy
    reader = Reader(await response.text())
    assert reader.open == []
    assets = [link for link in reader.links if "assets/" in link]
    assert assets
    assert [link for link in reader.links if ":" in link] == ["data:,"]
    for link in assets:
        assert re.search(r"\?v=[0-9a-f]{12}$", link)
        found = await client.get(urljoin(url + path, link)).build().send()
        assert found.status == 200
        assert "immutable" in found.headers["cache-control"]
        kind = "text/css" if ".css" in link else "text/javascript"
        assert found.headers["content-type"].startswith(kind)


@pytest.mark.parametrize("name", ["scalar.js", "__init__.py", "..%2Fdocs.py", "%2E%2E", ""])
async def test_other_files_are_not_served(client: Client, url: str, name: str) -> None:
    response = await client.get(f"{url}/docs/assets/{name}").build().send()
    assert response.status == 404


async def test_every_error_code_has_an_anchor_and_an_explanation(client: Client, url: str) -> None:
    response = await client.get(f"{url}/docs/errors").build().send()
    reader = Reader(await response.text())
    assert set(reader.ids) == set(ERROR_CODES)
    assert "`" not in reader.text
    for entry in ERROR_CODES.values():
        for words in (entry.code, str(entry.status), entry.title, entry.meaning, entry.action):
            assert words.replace("`", "") in reader.text
