"""Colours, dark mode and responsive layout of the console."""

from typing import Final

from nicegui import ui

COLOURS: Final = {
    "primary": "#0f5c4d",
    "secondary": "#3d5a80",
    "accent": "#b5531c",
    "positive": "#1b7a43",
    "negative": "#b3261e",
    "warning": "#8a5a00",
    "info": "#1d5f8a",
}
STYLE: Final = """
body { background: #f6f7f5; color: #1c2321; }
.body--dark { background: #131816; color: #e6ebe8; }
.body--dark .q-card, .body--dark .q-table__card, .body--dark .q-menu { background: #1d2421; }
/* Text and icons are brighter in dark mode; elements with white text keep their colour. */
.body--dark .nicegui-content, .body--dark .q-dialog { --q-primary: #6fd0b8; --q-positive: #74d39a;
  --q-negative: #ff9a90; --q-warning: #efc05a; }
.body--dark .q-badge, .body--dark .q-btn--standard { --q-primary: #0f5c4d; --q-positive: #1b7a43;
  --q-negative: #b3261e; --q-warning: #8a5a00; }
.tally-quiet { color: #4a5450; } .body--dark .tally-quiet { color: #b4beb9; }
.tally-small { font-size: .8125rem; }
.tally-numbers, .q-table td { font-variant-numeric: tabular-nums; }
.tally-figure { font-size: 2.2rem; font-weight: 600; line-height: 1.1;
  font-variant-numeric: tabular-nums; }
.tally-card { border-radius: 14px; box-shadow: 0 1px 3px rgb(0 0 0 / .14); min-width: 0; }
.tally-tile { transition: box-shadow .15s ease; gap: .5rem; }
.tally-tile:hover { box-shadow: 0 4px 14px rgb(0 0 0 / .18); }
.tally-rule { border-top: 1px solid rgb(127 140 134 / .3); }
.tally-row-move { transition: transform .4s ease; border-radius: 8px; }
.tally-row-move:hover, .tally-line:hover { background: rgb(127 140 134 / .14); }
.tally-line { border-radius: 8px; }
.tally-facts { display: grid; grid-template-columns: auto 1fr; gap: .15rem .75rem; margin: 0; }
.tally-facts dt, .tally-facts dd { margin: 0; }
.tally-bar .q-linear-progress__track { opacity: .18; }
.q-table th { font-weight: 600; color: #4a5450; } .body--dark .q-table th { color: #b4beb9; }
.q-btn { text-transform: none; }
.nicegui-content { padding: 1.25rem; max-width: 1280px; margin: 0 auto; }
.tally-tiles, .tally-halves, .tally-thirds, .tally-main-side, .tally-side-main, .tally-phone-side {
  display: grid; gap: 1rem; width: 100%; grid-template-columns: minmax(0, 1fr); }
.tally-tiles { grid-template-columns: repeat(auto-fit, minmax(min(100%, 235px), 1fr)); }
.tally-thirds { grid-template-columns: repeat(auto-fit, minmax(min(100%, 165px), 1fr));
  gap: 1.25rem; }
.tally-halves { grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); }
@media (min-width: 900px) {
  .tally-main-side { grid-template-columns: minmax(0, 3fr) minmax(0, 2fr); }
  .tally-side-main { grid-template-columns: minmax(0, 2fr) minmax(0, 3fr); }
  .tally-phone-side { grid-template-columns: minmax(0, 1fr) 340px; }
}
.tally-operator { overflow-wrap: anywhere; }
.tally-link { color: #0f5c4d; text-decoration: underline; }
.body--dark .tally-link { color: #6fd0b8; }
.tally-block-link { color: inherit; text-decoration: none; display: block; min-width: 0; }
.tally-header { display: flex; flex-wrap: nowrap; align-items: center; gap: .5rem;
  padding: .4rem .75rem; background: #0f5c4d; }
.tally-brand { display: flex; align-items: center; gap: .4rem; color: white;
  font-size: 1.25rem; font-weight: 500; flex: none; }
.tally-search { margin-left: auto; flex: 0 1 24rem; min-width: 0; }
.tally-search input { box-sizing: border-box; width: 100%; padding: .45rem .8rem; font: inherit;
  color: #1c2321; background: white; border: 0; border-radius: 8px; }
.tally-search input::placeholder { color: #4a5450; }
.tally-drawer { display: flex; flex-direction: column; justify-content: space-between;
  gap: 1rem; padding: .75rem; background: #ffffff; }
.body--dark .q-drawer { background: #1d2421; }
.body--dark .tally-drawer { background: #1d2421; --q-primary: #6fd0b8; }
.tally-list { list-style: none; margin: 0; padding: 0; width: 100%; }
.tally-group { padding: .9rem .6rem .3rem; }
.tally-nav { display: flex; align-items: center; gap: .75rem; width: 100%;
  padding: .45rem .6rem; border-radius: 8px; }
.tally-nav:hover { background: rgb(127 140 134 / .14); }
.tally-nav[aria-current=page] { background: #0f5c4d; color: white; }
.q-notification { max-width: 34rem; font-size: 1rem; color: white !important; }
@media (min-width: 1024px) { .tally-menu { display: none; } }
@media (max-width: 599px) {
  .nicegui-content { padding: .75rem; }
  .tally-brand .q-icon { display: none; }
}
a:focus-visible, button:focus-visible, input:focus-visible, [tabindex]:focus-visible {
  outline: 3px solid #b5531c; outline-offset: 2px; }
.body--dark a:focus-visible, .body--dark button:focus-visible,
.body--dark [tabindex]:focus-visible { outline-color: #f0a56b; }
.q-header a:focus-visible, .q-header button:focus-visible, .q-header input:focus-visible {
  outline-color: #ffd28a; }
"""
# The sign-in page has no other stylesheet.
SIGN_IN_STYLE: Final = """
:root { color-scheme: light dark; font-family: Roboto, system-ui, sans-serif; }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; background: #f6f7f5;
  color: #1c2321; }
main { box-sizing: border-box; width: min(26rem, 92vw); padding: 2rem; border-radius: 14px;
  background: white; box-shadow: 0 1px 3px rgb(0 0 0 / .14); }
h1 { margin: 0 0 .75rem; font-size: 1.75rem; font-weight: 500; color: #0f5c4d; }
p { margin: 0 0 1.25rem; font-size: .875rem; line-height: 1.5; color: #4a5450; }
code { white-space: nowrap; }
label { display: block; margin-bottom: .5rem; font-size: .875rem; }
input { box-sizing: border-box; width: 100%; padding: .7rem; font: inherit; color: inherit;
  background: none; border: 1px solid #7f8c86; border-radius: 6px; }
p[role=alert] { min-height: 1.3rem; margin: .5rem 0; color: #b3261e; }
button { width: 100%; padding: .7rem; font: inherit; font-weight: 500; color: white;
  background: #0f5c4d; border: 0; border-radius: 6px; cursor: pointer; }
input:focus-visible, button:focus-visible { outline: 3px solid #b5531c; outline-offset: 2px; }
@media (prefers-color-scheme: dark) {
  body { background: #131816; color: #e6ebe8; }
  main { background: #1d2421; }
  h1 { color: #6fd0b8; }
  p { color: #b4beb9; }
  p[role=alert] { color: #ff9a90; }
}
"""


def apply_theme() -> None:
    """Add the colours and the stylesheet to the page."""
    ui.colors(**COLOURS)
    # `ui.add_css` adds a script, which the content security policy forbids.
    ui.add_head_html(f"<style>{STYLE}</style>")
    ui.query("html").props("lang=en")
