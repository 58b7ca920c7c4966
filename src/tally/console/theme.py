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
.tally-tiles { grid-template-columns: repeat(auto-fit, minmax(min(100%, 270px), 1fr)); }
.tally-thirds { grid-template-columns: repeat(auto-fit, minmax(min(100%, 165px), 1fr));
  gap: 1.25rem; }
.tally-halves { grid-template-columns: repeat(auto-fit, minmax(min(100%, 440px), 1fr)); }
@media (min-width: 900px) {
  .tally-main-side { grid-template-columns: minmax(0, 3fr) minmax(0, 2fr); }
  .tally-side-main { grid-template-columns: minmax(0, 2fr) minmax(0, 3fr); }
  .tally-phone-side { grid-template-columns: minmax(0, 1fr) 340px; }
}
@media (max-width: 899px) {
  .tally-nav .q-btn__content .block { position: absolute; width: 1px; height: 1px;
    overflow: hidden; clip-path: inset(50%); }
  .tally-nav { padding: 4px 8px; min-width: 0; }
  .tally-nav .q-icon.on-left { margin-right: 0; }
}
@media (max-width: 599px) {
  .nicegui-content { padding: .75rem; }
  .tally-brand { display: none; }
}
a:focus-visible, button:focus-visible, [tabindex]:focus-visible {
  outline: 3px solid #b5531c; outline-offset: 2px; }
"""


def apply_theme() -> None:
    """Add the colours and the stylesheet to the page."""
    ui.colors(**COLOURS)
    ui.add_css(STYLE)
    ui.query("html").props("lang=en")
