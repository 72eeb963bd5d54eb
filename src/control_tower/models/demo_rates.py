"""Prices that come with this package: invented ones of the demo's models, and nothing for Inspect's mock."""

from control_tower.models.rates import Pricing, RateRow

_DOLLARS = {"demo/agent": 1.0, "demo/trusted": 0.1, "demo/judge": 0.1, "mockllm/model": 0.0}

BUILT_IN_RATES: tuple[RateRow, ...] = tuple(
    RateRow(
        model=model,
        pricing=Pricing(
            input_per_million=dollars, output_per_million=5 * dollars, cached_input_per_million=dollars / 10
        ),
        manual=True,
    )
    for model, dollars in _DOLLARS.items()
)
"""The demo's prices let its cost tables show numbers."""
