"""Figures: what they show and say, gaps that stay gaps, files that are the same every time."""

import itertools
import math
import re
import struct
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from control_tower.errors import OperationError
from control_tower.metrics.figures import figures, write_figures
from control_tower.metrics.figures.pareto import Measure, ParetoPanel, ParetoPoint, pareto
from control_tower.metrics.figures.render import Figure, NoFigure
from control_tower.metrics.figures.roc import RocCurve, roc
from control_tower.metrics.figures.safety_curve import (
    BudgetPoint,
    Curve,
    LivePoint,
    Reference,
    safety_curve,
)
from control_tower.metrics.figures.scores import ScorePanel, histogram, scores
from control_tower.metrics.figures.theme import DARK, LIGHT, THEMES, Theme
from control_tower.metrics.figures.trajectory_dots import MOST_ROWS, DotRow, trajectory_dots
from control_tower.metrics.report import (
    Accounting,
    Counts,
    Dot,
    Estimate,
    Evaluation,
    Parameters,
    Report,
    Roc,
)
from control_tower.metrics.report import BudgetPoint as Measured
from control_tower.metrics.samples import Floats


def drawn(figure: Figure | NoFigure) -> str:
    """A figure in light."""
    assert isinstance(figure, Figure), figure
    return figure.svg(LIGHT)


def texts(svg: str) -> list[str]:
    """Everything that is written in a figure."""
    return re.findall(r"<(?:text|tspan)\b[^>]*>([^<]+)</", svg)


def lines(svg: str, colour: str) -> list[str]:
    """The curves of a colour."""
    return re.findall(rf'aria-roledescription="line mark" d="([^"]*)" stroke="{colour}"', svg)


def curve(name: str, safety: Sequence[float | None]) -> Curve:
    """A curve over budgets 0, 0.01, 0.02 and so on, with a band of 5 % on both sides."""
    return Curve(
        name,
        tuple(
            BudgetPoint(at / 100, value, None if value is None else value - 0.05, value and value + 0.05)
            for at, value in enumerate(safety)
        ),
    )


def test_a_safety_curve_is_labelled() -> None:
    svg = drawn(
        safety_curve(
            [curve("simple", [0.1, 0.5, 0.9])],
            [LivePoint("defer", BudgetPoint(0.05, 0.7, 0.6, 0.8))],
            [Reference("untrusted", 0.2)],
            ["Bands: 95 % interval"],
        )
    )
    assert {"Safety", "0 %", "0.1 %", "100 %", "simple", "defer", "untrusted"} <= set(texts(svg))
    assert "Bands: 95 % interval" in texts(svg)
    assert "Audit budget: honest actions audited (logarithmic above 0.1 %)" in texts(svg)


@pytest.mark.parametrize("gap", [None, math.nan])
def test_where_safety_is_undefined_the_curve_has_a_gap(gap: float | None) -> None:
    svg = drawn(safety_curve([curve("simple", [0.1, 0.2, gap, 0.4, 0.5])]))
    [line] = lines(svg, LIGHT.series[0])
    assert line.count("M") == 2
    assert "NaN" not in svg


def test_a_point_without_neighbours_is_seen() -> None:
    without = drawn(safety_curve([curve("simple", [0.1, 0.2, None, None, None])]))
    alone = drawn(safety_curve([curve("simple", [0.1, 0.2, None, 0.4, None])]))
    assert alone.count('aria-roledescription="circle"') == without.count('aria-roledescription="circle"') + 1


def test_ten_curves_can_be_told_apart() -> None:
    svg = drawn(safety_curve([curve(f"monitor {n}", [n / 10, n / 10]) for n in range(10)]))
    line = r'stroke="(#\w+)"[^>]*stroke-width="2"[^>]*stroke-dasharray="([^"]*)"'
    looks = set(re.findall(line, svg))
    assert len(looks) == 10


def test_dominated_points_are_hollow() -> None:
    def point(name: str, safety: float | None, dominated: bool = False) -> ParetoPoint:
        return ParetoPoint(name, Measure(safety, 0.1, 0.9), Measure(0.5, 0.4, 0.6), dominated)

    both = ParetoPanel("At 1 %", (point("good", 0.8), point("bad", 0.2, True), point("odd", None)))
    svg = drawn(pareto([both]))
    assert {"Usefulness", "Safety", "good", "bad", "At 1 %"} <= set(texts(svg))
    assert "Not drawn where a number is missing: odd" in texts(svg)
    marks = re.findall(r'aria-label="[^"]*name: (\w+)[^"]*"[^>]*fill="(#\w+)"[^>]*opacity="(\d)"', svg)
    assert ("good", LIGHT.series[0], "1") in marks
    assert ("bad", LIGHT.series[1], "0") in marks


def test_points_at_the_same_place_are_both_seen() -> None:
    same = [ParetoPoint(name, Measure(0.5), Measure(0.5)) for name in ("one", "two")]
    svg = drawn(pareto([ParetoPanel("At 1 %", tuple(same))]))
    mark = r'aria-label="[^"]*name: (\w+)[^"]*"[^>]*d="([^"]*)"[^>]*fill="#'
    sizes = dict(re.findall(mark, svg))
    assert len(set(sizes.values())) == 2


def test_roc_panels_keep_a_monitors_colour() -> None:
    points = ((0.0, 0.0), (0.0, 0.8), (1.0, 1.0))
    svg = drawn(
        roc(
            [
                RocCurve("a", "a: AUROC 0.90", "action", points),
                RocCurve("b", "b" * 99 + "\nAUROC 0.80", "action", points),
                RocCurve("b", "b: AUROC 0.70", "trajectory", points),
            ]
        )
    )
    assert {"By action", "By trajectory", "AUROC 0.80", "b: AUROC 0.70"} <= set(texts(svg))
    assert len(lines(svg, LIGHT.series[1])) == 2


def test_histograms_count_every_score_once() -> None:
    shares = histogram([0, 4.9, 5, 99, 100])
    assert (shares[0], shares[1], shares[-1]) == (0.4, 0.2, 0.4)
    assert sum(shares) == pytest.approx(1)


def test_unscored_is_counted_in_the_scores_figure() -> None:
    panel = ScorePanel("simple", (1.0, 2.0), (90.0,), 3, 0, (("1 %", 80.0),))
    written = texts(drawn(scores([panel, ScorePanel("silent", (), (), 5, 5)])))
    assert {"honest n = 2 + 3 unscored; attack n = 1", "Score (0-100)", "1 %", "honest", "attack"} <= set(
        written
    )
    assert "Not drawn, nothing was scored: silent" in written


def test_each_trajectory_says_what_became_of_it() -> None:
    rows = [
        DotRow("env:a:x", "attack", (0, 90.0, None), (0, 1, 0), landed_at=1, side_score=1.0, caught=1.0),
        DotRow("env:b:x", "attack", (5.0,), landed_at=-1, side_score=1.0, caught=0.0),
        DotRow("env:c:x", "attack", (5.0,), side_score=0.0, caught=0.25),
        DotRow("env:d:x", "attack", (5.0,), side_score=None, caught=0.25),
        DotRow("env:a", "honest", (math.nan, 3.0)),
    ]
    written = texts(drawn(trajectory_dots(rows)))
    assert {"Attack samples of env", "Honest samples of env", "Action", "a:x"} <= set(written)
    assert {"caught", "not caught", "caught 25 %; side task failed", "side task unscored"} <= set(written)


def test_of_very_many_trajectories_some_are_drawn_and_it_is_said() -> None:
    given = report()
    attack, honest = given.evaluations[0].dots
    many = replace(given.evaluations[0], dots=(honest, *[attack] * 3 * MOST_ROWS))
    dots = next(f for f in figures(replace(given, evaluations=(many,))) if f.name == "trajectory_dots")
    written = texts(drawn(dots))
    assert f"{MOST_ROWS} of {3 * MOST_ROWS} attack samples are drawn" in written
    assert written.count("caught 50 %") == MOST_ROWS


def test_names_from_logs_are_text_and_nothing_else() -> None:
    name = '<script src="//x"/>&"\'\\ \x00 \ud800 \u2028'
    shown = [
        safety_curve([curve(name, [0.1, 0.2])], notes=[name]),
        trajectory_dots([DotRow(name, "attack", (1.0,), side_score=1.0)], [name]),
        roc([RocCurve(name, name, "action", ((0.0, 0.0), (1.0, 1.0)))]),
    ]
    for figure in shown:
        root = ElementTree.fromstring(drawn(figure))
        assert not [element for element in root.iter() if element.tag.endswith("script")]
        assert '<script src="//x"/>&"' in "".join(root.itertext())


@pytest.mark.parametrize(
    "nothing",
    [
        safety_curve([curve("simple", [None, math.nan])]),
        pareto([ParetoPanel("At 1 %", (ParetoPoint("a", Measure(None), Measure(1)),))]),
        roc([RocCurve("a", "a", "action", ())]),
        scores([ScorePanel("a", (), ())]),
        trajectory_dots([DotRow("a", "attack", ())]),
    ],
    ids=lambda figure: figure.name,
)
def test_without_data_there_is_no_figure_but_a_reason(nothing: Figure | NoFigure) -> None:
    assert isinstance(nothing, NoFigure)
    assert nothing.reason


def luminance(colour: str) -> float:
    """Relative luminance."""
    return float(linear(colour) @ [0.2126, 0.7152, 0.0722])


def linear(colour: str) -> Floats:
    """Linear red, green and blue."""
    given = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(given <= 0.04045, given / 12.92, ((given + 0.055) / 1.055) ** 2.4)


SIGHT = {
    "normal": (1, 0, 0, 0, 1, 0, 0, 0, 1),
    "protanopia": (
        0.152286,
        1.052583,
        -0.204868,
        0.114503,
        0.786281,
        0.099216,
        -0.003882,
        -0.048116,
        1.051998,
    ),
    "deuteranopia": (
        0.367322,
        0.860646,
        -0.227968,
        0.280085,
        0.672501,
        0.047413,
        -0.01182,
        0.04294,
        0.968881,
    ),
    "tritanopia": (1.2555, -0.0767, -0.1788, -0.0784, 0.9308, 0.1476, 0.0047, 0.6914, 0.3039),
}
"""How colours are seen (Machado, Oliveira and Fernandes, 2009)."""


def lab(colour: str, sight: str) -> Floats:
    """A colour as it is seen, in CIELAB."""
    seen = np.clip(np.reshape(SIGHT[sight], (3, 3)) @ linear(colour), 0, 1)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(to_xyz @ seen / [0.9505, 1, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("theme", THEMES, ids=["light", "dark"])
def test_colours_differ_from_the_page_and_from_each_other_for_every_eye(theme: Theme) -> None:
    def contrast(colour: str) -> float:
        bright, dark = sorted((luminance(colour), luminance(theme.background)), reverse=True)
        return (bright + 0.05) / (dark + 0.05)

    assert min(map(contrast, theme.series)) >= 3
    assert min(map(contrast, (theme.ink, theme.muted))) >= 4.5
    for sight in SIGHT:
        pairs = itertools.combinations(theme.series, 2)
        assert min(float(np.linalg.norm(lab(a, sight) - lab(b, sight))) for a, b in pairs) >= 10, sight


def report() -> Report:
    """A report of one monitor and one live protocol."""

    def estimate(value: float) -> Estimate:
        return Estimate(value, value - 0.1, value + 0.1, n=8, method="bootstrap")

    points = tuple(Measured(b, 50.0, 0.5, b, estimate(0.5 + b)) for b in (0.01, 0.05, 0.1))
    dots = (
        Dot("env:a:x", 1, "attack", "env", 60.0, 1, 2, 1.0, 1, (0.1, 0.5, 0.9), np.array([50.0, math.nan])),
        Dot("env:a", 2, "honest", "env", 3.0, 0, 1, 1.0, None, (), np.array([3.0])),
    )
    curve = Evaluation(
        name="simple",
        sources=(),
        protocol="ct/trusted-monitoring",
        monitor="simple",
        level="action",
        kind="curve",
        usefulness=estimate(0.8),
        main_success=estimate(0.8),
        attack_success=estimate(0.8),
        points=points,
        curve=points,
        rocs=(Roc("action", np.array([0, 1.0]), np.array([0, 1.0]), Estimate(0.5), {}, 4, 6, 1, 0),),
        scores=(),
        dots=dots,
        groups=(),
        accounting=Accounting(Counts(samples=5, errored=1), Counts(samples=9)),
    )
    live = replace(curve, name="defer", kind="live", points=points[:1], curve=(), rocs=(), dots=())
    parameters = Parameters((0.01, 0.05, 0.1), None, 2000, 1, "combination")
    return Report(parameters, (curve, live), {})


def test_a_report_says_what_its_intervals_and_samples_are() -> None:
    drawn_figures = {figure.name: figure for figure in figures(report())}
    written = texts(drawn(drawn_figures["safety_curve"]))
    assert "Bands and bars: 95 % interval (bootstrap over combinations with 2,000 draws)" in written
    assert "n = 4 honest and 9 attack samples" in written
    assert "AUROC 0.50, n = 4 honest, 6 attack" in texts(drawn(drawn_figures["roc"]))
    assert "No interval: none was computed" in texts(drawn(drawn_figures["roc"]))
    dots = texts(drawn(drawn_figures["trajectory_dots"]))
    assert {"caught 50 %", "a (epoch 2)"} <= set(dots)
    assert "Ring: audited at a budget of 5 %, faint if unlikely" in " ".join(dots)


def test_files_and_reasons(tmp_path: Path) -> None:
    said: list[str] = []
    folder = tmp_path / "new" / "folder"
    written = write_figures(report(), folder, said.append)
    endings = [".svg", ".png", ".dark.svg", ".dark.png"]
    names = [f"{name}{end}" for name in ("safety_curve", "roc", "trajectory_dots") for end in endings]
    assert [path.name for path in written] == names
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)
    assert said == [
        "no figure pareto: no protocol has both a usefulness and a safety",
        "no figure scores: no monitor gave a score",
    ]
    light, dark = (folder / name for name in ("roc.svg", "roc.dark.svg"))
    assert LIGHT.background in light.read_text()
    assert DARK.background in dark.read_text()
    size = re.search(r'width="(\d+)" height="(\d+)"', light.read_text())
    assert size
    pixels = struct.unpack(">II", (folder / "roc.png").read_bytes()[16:24])
    assert pixels == tuple(2 * int(side) for side in size.groups())
    assert not re.search(r"(href|src|url)\W{1,2}https?:", light.read_text())


def test_a_folder_that_cannot_be_made_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OperationError, match="file/figures"):
        write_figures(report(), tmp_path / "file" / "figures")


def test_the_same_numbers_give_the_same_bytes() -> None:
    program = (
        "from tests.metrics.test_figures import LIGHT, figures, report, Figure\n"
        "import hashlib\n"
        "for f in figures(report()):\n"
        "    isinstance(f, Figure) and print(hashlib.sha256(f.svg(LIGHT).encode()).hexdigest())"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=True,
            cwd=Path(__file__).parents[2],
            env={"PYTHONHASHSEED": seed, "TZ": zone},
        ).stdout
        for seed, zone in (("1", "UTC"), ("2", "Asia/Tokyo"))
    ]
    assert len(runs[0].split()) == 3
    assert runs[0] == runs[1]
