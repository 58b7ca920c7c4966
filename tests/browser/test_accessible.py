"""Every page is accessible: labels, contrast, one main heading, small screens and keyboard."""

from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.async_api import Page

from tests.browser.conftest import RunningDemo
from tests.clients.generators import node_modules

# A path, and the link to follow from there to a page of one match, athlete, player or device.
PAGES = (
    ("/", ""),
    ("/cricket", ""),
    ("/cricket", "/cricket/"),
    ("/collect", ""),
    ("/collect", "/collect/athletes/"),
    ("/scoreboard", ""),
    ("/scoreboard", "/scoreboard/players/"),
    ("/scoreboard/boards", ""),
    ("/devices", ""),
    ("/devices", "/devices/02:"),
    ("/devices/keys", ""),
    ("/data", ""),
    ("/search?q=a", ""),
    ("/nowhere", ""),
)

COLOUR_SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")

# Controls without an accessible name.
UNNAMED_CONTROLS = """
() => [...document.querySelectorAll('button, a[href], input, [role=switch], [role=link]')]
  .filter(e => e.offsetParent !== null && !e.closest('[aria-hidden=true]'))
  .map(e => ({
    tag: e.outerHTML.slice(0, 160),
    name: (e.getAttribute('aria-label') || e.innerText || e.getAttribute('title') || e.placeholder
           || (e.labels && [...e.labels].map(l => l.innerText).join(' '))
           || (e.closest('label') || {}).innerText || '').trim(),
  }))
  .filter(e => !e.name)
"""

# Text with less contrast than WCAG AA requires.
LOW_CONTRAST_TEXT = """
() => {
  const parse = c => { const m = c.match(/[\\d.]+/g).map(Number);
    return { rgb: m.slice(0, 3), a: m.length > 3 ? m[3] : 1 }; };
  const light = rgb => rgb.map(v => v / 255)
    .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
    .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = e => { for (let n = e; n; n = n.parentElement) { const style = getComputedStyle(n);
    if (style.backgroundImage !== 'none') return null;
    const c = parse(style.backgroundColor); if (c.a > 0.95) return c.rgb; }
    return [255, 255, 255]; };
  const found = [];
  for (const e of document.querySelectorAll('body *')) {
    const text = [...e.childNodes].filter(n => n.nodeType === 3)
      .map(n => n.textContent.trim()).join('');
    if (!text || e.offsetParent === null) continue;
    const ignored = '.material-icons, .q-icon, [aria-hidden=true], canvas, .q-field__label';
    if (e.closest(ignored)) continue;
    const style = getComputedStyle(e), back = behind(e), front = parse(style.color);
    if (back === null || front.a < 0.05) continue;
    const mixed = front.rgb.map((v, i) => v * front.a + back[i] * (1 - front.a));
    const [a, b] = [light(mixed), light(back)].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05), size = parseFloat(style.fontSize);
    const needed = size >= 24 || (size >= 18.6 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    if (ratio < needed) {
      found.push({ text: text.slice(0, 60), ratio: Math.round(ratio * 100) / 100 });
    }
  }
  return found;
}
"""


# Findings of axe-core that keep people from using the page.
SERIOUS_FINDINGS = """
async () => (await axe.run(document, {resultTypes: ["violations"]})).violations
  .filter(rule => ["serious", "critical"].includes(rule.impact))
  .map(rule => ({ rule: rule.id, html: rule.nodes.map(node => node.html.slice(0, 200)) }))
"""


@pytest.fixture(scope="module")
def axe() -> str:
    """The source of axe-core, which is evaluated in each page."""
    script = node_modules(Path(__file__).parent / "axe") / "axe-core" / "axe.min.js"
    return script.read_text(encoding="utf-8")


@pytest.mark.parametrize(("path", "link"), PAGES)
async def test_a_page_is_accessible_in_light_and_dark_mode_and_on_a_phone(
    demo: RunningDemo, page: Page, axe: str, path: str, link: str
) -> None:
    """Wide tables scroll within their card."""
    await page.emulate_media(color_scheme="light")
    await page.goto(f"{demo.console}{path}")
    if link:
        await page.locator(f"main a[href*='{link}']").first.click()
        await page.wait_for_url(f"**{link}*")
    await page.get_by_role("heading", level=1).wait_for()
    await page.wait_for_load_state("networkidle")
    await page.evaluate(axe)
    unnamed: list[Any] = await page.evaluate(UNNAMED_CONTROLS)
    assert unnamed == []
    await expect_contrast(page)
    assert await page.evaluate(SERIOUS_FINDINGS) == []
    await page.emulate_media(color_scheme="dark")
    await page.wait_for_selector("body.body--dark")
    await expect_contrast(page)
    assert await page.locator("[role=heading][aria-level='1']").count() == 1
    assert await page.locator("html").get_attribute("lang") == "en"
    await page.set_viewport_size({"width": 390, "height": 844})
    # The 3D scene resizes after the page does.
    await page.wait_for_function("() => document.documentElement.scrollWidth <= 390")
    assert await page.evaluate(SERIOUS_FINDINGS) == []


async def test_the_sign_in_page_is_accessible_on_a_phone(
    demo: RunningDemo, page: Page, axe: str
) -> None:
    await page.context.clear_cookies()
    await page.set_viewport_size({"width": 390, "height": 844})
    for scheme in COLOUR_SCHEMES:
        await page.emulate_media(color_scheme=scheme)
        await page.goto(f"{demo.console}/login")
        await page.evaluate(axe)
        assert await page.evaluate(SERIOUS_FINDINGS) == []
        await expect_contrast(page)
        assert await page.evaluate("() => document.documentElement.scrollWidth") <= 390


async def expect_contrast(page: Page) -> None:
    low_contrast: list[Any] = await page.evaluate(LOW_CONTRAST_TEXT)
    assert low_contrast == []


async def test_the_keyboard_reaches_the_navigation(demo: RunningDemo, page: Page) -> None:
    await page.goto(f"{demo.console}/")
    await page.wait_for_selector("[data-tile=devices]")
    reached = set()
    for _ in range(30):
        await page.keyboard.press("Tab")
        reached.add(await page.evaluate("() => document.activeElement.innerText || ''"))
    assert any("Devices" in text for text in reached)
    assert any("Data" in text for text in reached)
