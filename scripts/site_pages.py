"""MkDocs hook: publishes pages from outside `docs/` and adapts links for the site.

Pages link to each other, and to source files, by their paths in the repository. On the site, a link
to a published page leads to that page; a link to any other file becomes plain text. A link to a
file that does not exist is left as it is, and fails the strict build.
"""

import os
import re
from pathlib import Path
from typing import Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).resolve().parent.parent
# Pages outside `docs/` and their names on the site.
EXTRA_PAGES: Final = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "tests/README.md": "tests.md",
    "examples/README.md": "examples.md",
}
_SOURCES: Final = {page: source for source, page in EXTRA_PAGES.items()}
_LINK: Final = re.compile(r"(!?)\[((?:[^][]|\[[^]]*\])*)\]\((?!\w+:|#)([^)#\s]+)(#[^)\s]*)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages from outside `docs/`."""
    for source, page in EXTRA_PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text("utf-8")))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Adapt the links of a page."""
    source = _SOURCES.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    return _LINK.sub(lambda link: _adapt(link, source, page.file.src_uri), markdown)


def _adapt(link: re.Match[str], source: str, page: str) -> str:
    image, text, target, anchor = link.groups(default="")
    path = os.path.normpath(Path(source).parent / target)
    if path in EXTRA_PAGES:
        path = EXTRA_PAGES[path]
    elif path.startswith("docs/"):
        path = path.removeprefix("docs/")
    elif (ROOT / path).exists():
        return text
    else:
        return link[0]
    relative = os.path.relpath(path, Path(page).parent)
    return f"{image}[{text}]({relative}{anchor})"
