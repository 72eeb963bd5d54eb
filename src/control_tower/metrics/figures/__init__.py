"""Figures of a metrics report, for papers and pages: Vega-Lite specs rendered to SVG and PNG."""

from control_tower.metrics.figures.of_report import figures, write_figures

__all__ = ["figures", "write_figures"]
