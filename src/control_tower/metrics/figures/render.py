"""A figure as files: SVG and PNG, light and dark, without the network and with the same bytes every time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from control_tower.errors import OperationError
from control_tower.metrics.figures.encodings import printable
from control_tower.metrics.figures.theme import THEMES, Spec, Theme

VEGA_LITE = "6.4"
PNG_SCALE = 2


@dataclass(frozen=True)
class Figure:
    """A Vega-Lite specification and the name of its files."""

    name: str
    spec: Spec

    def svg(self, theme: Theme) -> str:
        """The figure as SVG."""
        import vl_convert

        spec = cast(Spec, _plain(self.spec))
        return vl_convert.vegalite_to_svg(
            spec, vl_version=VEGA_LITE, config=theme.config(), allowed_base_urls=[]
        )

    def write(self, folder: Path, *, dark: bool = True) -> list[Path]:
        """Writes `<name>.svg`, `.png`, `.dark.svg` and `.dark.png`; the PNG has twice the SVG's pixels.

        Raises:
            OperationError: The folder cannot be written.
        """
        import vl_convert

        written: list[Path] = []
        for theme in THEMES if dark else THEMES[:1]:
            svg = self.svg(theme)
            for ending, data in {
                "svg": (svg + "\n").encode(),
                "png": vl_convert.svg_to_png(svg, scale=PNG_SCALE),
            }.items():
                path = folder / f"{self.name}{theme.suffix}.{ending}"
                try:
                    path.write_bytes(data)
                except OSError as error:
                    raise OperationError(f"{path}: the figure cannot be written: {error.strerror}") from None
                written.append(path)
        return written


@dataclass(frozen=True)
class NoFigure:
    """Why a figure could not be drawn."""

    name: str
    reason: str


def _plain(value: Any) -> Any:
    """The value as JSON can hold it: null for numbers that are none, which makes a gap and never a zero."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in cast("dict[str, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in cast("list[Any]", value)]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
