"""The documentation site: complete, built strictly, and independent of other hosts."""

import re
import subprocess
import sys
from pathlib import Path

from scripts.site_pages import EXTRA_PAGES

ROOT = Path(__file__).parent.parent


def test_navigation_lists_every_page() -> None:
    """A reader of the site finds every page of `docs/` and every page added to it."""
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")[2]
    listed = re.findall(r"([\w/-]+\.md)$", navigation, re.MULTILINE)
    docs = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert sorted(listed) == sorted(docs | set(EXTRA_PAGES.values()))


def test_site_builds_strictly_and_loads_nothing_from_other_hosts(tmp_path: Path) -> None:
    """A broken link fails the build; scripts, styles, fonts and images come with the site."""
    built = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert len(pages) > 15
    loaded = [
        (page.name, tag)
        for page in pages
        for tag in re.findall(r"<(?:script|link|img)\b[^>]*>", page.read_text(encoding="utf-8"))
        if re.search(r'(?:src|href)="?(?:https?:)?//', tag) and 'rel="canonical"' not in tag
    ]
    assert loaded == []
