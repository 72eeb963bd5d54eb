"""How figures look in light and dark: one Vega-Lite configuration each, so that specs name no colours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

Spec = dict[str, Any]

FONTS = "Liberation Sans, Arial, Helvetica, sans-serif"
"""The renderer has the first; it drops text in fonts that it lacks. The others have the same widths."""


@dataclass(frozen=True)
class Theme:
    """The colours of a figure: any two of a series differ for colour-blind eyes too, and from the page."""

    suffix: str
    """Between a figure's name and its file's extension."""
    background: str
    ink: str
    """Titles and labels."""
    muted: str
    """References, and what is missing."""
    grid: str
    series: tuple[str, ...]
    """Of what is compared; of the two streams the first two."""
    ramp: tuple[str, ...]
    """From score 0 to score 100."""

    def config(self) -> Spec:
        """The configuration that a spec is rendered with.

        Beside Vega-Lite's own names it defines the ranges `series`, `streams` (honest, attack) and
        `scores`, and the styles under `style`.
        """
        return {
            "background": self.background,
            "font": FONTS,
            "padding": 12,
            "view": {"stroke": None},
            "title": {
                "anchor": "start",
                "frame": "group",
                "color": self.ink,
                "fontSize": 14,
                "fontWeight": "bold",
                "subtitleColor": self.muted,
                "subtitleFontSize": 11,
                "subtitlePadding": 4,
                "offset": 12,
            },
            "axis": {
                "labelColor": self.ink,
                "titleColor": self.ink,
                "labelFontSize": 11,
                "labelFlush": False,
                "titleFontSize": 12,
                "titleFontWeight": "normal",
                "titlePadding": 8,
                "domainColor": self.muted,
                "tickColor": self.muted,
                "gridColor": self.grid,
            },
            "legend": {
                "labelColor": self.ink,
                "titleColor": self.ink,
                "labelFontSize": 11,
                "titleFontSize": 11,
                "titleFontWeight": "normal",
                "labelLimit": 420,
                "symbolLimit": 40,
                "symbolStrokeWidth": 2,
                "symbolOpacity": 1,
                "layout": {"bottom": {"anchor": "start", "direction": "vertical", "margin": 4}},
            },
            "range": {
                "series": list(self.series),
                "streams": list(self.series[:2]),
                "scores": list(self.ramp),
            },
            "style": {
                "reference": {"color": self.muted, "strokeDash": [3, 3], "strokeWidth": 1.2},
                "reference-label": {"color": self.muted, "fontSize": 10},
                "note": {"color": self.ink, "fontSize": 10},
                "missing": {"color": self.muted, "strokeWidth": 1.2},
                "audited": {"color": self.ink, "strokeWidth": 1.4},
                "landing": {"color": self.series[1]},
            },
        }


LIGHT = Theme(
    suffix="",
    background="#ffffff",
    ink="#1f2328",
    muted="#6e7781",
    grid="#e4e7eb",
    series=("#0072b2", "#d55e00", "#1b9e77", "#a6338a", "#8f8246", "#3b2a80", "#222222"),
    ramp=("#dfe7f1", "#9fc0de", "#6c8fc7", "#7a5aa8", "#8c2673", "#5c0b3a"),
)

DARK = Theme(
    suffix=".dark",
    background="#16191d",
    ink="#e8eaed",
    muted="#9aa4af",
    grid="#2c3238",
    series=("#4aa8e8", "#ff8a3d", "#35c9a0", "#f0b4d8", "#f7f3a6", "#9a66f2", "#8d969e"),
    ramp=("#2c3a4d", "#3f5f86", "#6a74b8", "#a773c4", "#e07fb0", "#ffd0d6"),
)

THEMES = (LIGHT, DARK)
