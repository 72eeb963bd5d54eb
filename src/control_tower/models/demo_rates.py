"""Invented prices of the demo's models, so that its cost tables show numbers."""

from control_tower.models.rates import Pricing, RateRow

DEMO_RATES: tuple[RateRow, ...] = tuple(
    RateRow(
        model=model,
        pricing=Pricing(
            input_per_million=dollars, output_per_million=5 * dollars, cached_input_per_million=dollars / 10
        ),
        manual=True,
    )
    for model, dollars in (("demo/agent", 1.0), ("demo/trusted", 0.1), ("demo/judge", 0.1))
)
