"""A comparison of two logs as JSON."""

from __future__ import annotations

from typing import Any

from control_tower.logs.compare import Comparison, PairedMeans


def document(found: Comparison) -> dict[str, Any]:
    """All of it; differences are B minus A."""
    a, b = found.costs
    return {
        "a": {"log": found.logs[0], "samples": found.samples[0], "converted": found.converted[0]},
        "b": {"log": found.logs[1], "samples": found.samples[1], "converted": found.converted[1]},
        "pairs": found.pairs,
        "only_in_one": only_in_one(found, "ab"),
        "differs": {name: {"a": x, "b": y} for name, (x, y) in found.differs.items()},
        "verdicts": {
            role: {
                "pairs": verdicts.pairs,
                "errored": dict(zip("ab", verdicts.failed, strict=True)),
                "unscored": dict(zip("ab", verdicts.unscored, strict=True)),
                "overall": {side: vars(rate) for side, rate in zip("ab", verdicts.overall, strict=True)},
                "paired": _paired(verdicts.paired),
                "flips": [vars(flip) for flip in verdicts.flips],
            }
            for role, verdicts in found.verdicts.items()
        },
        "caught": {name: _paired(means) for name, means in found.caught.items()},
        "cost": {
            "a": vars(a),
            "b": vars(b),
            "difference": None if a.incomplete or b.incomplete else b.usd - a.usd,
        },
    }


def _paired(means: PairedMeans) -> dict[str, Any]:
    test = means.significance
    return {
        "n": means.n,
        "a": means.a,
        "b": means.b,
        "difference": means.difference,
        "p": test.p if test else None,
        "test": test.method if test else None,
    }


def only_in_one(found: Comparison, names: str) -> list[dict[str, Any]]:
    """Samples that only one log has, with the name of that log."""
    return [
        {"log": log, "sample": key.id, "epoch": key.epoch}
        for log, keys in zip(names, found.only_in, strict=True)
        for key in keys
    ]
