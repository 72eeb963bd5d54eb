"""Prices: whose file counts, which names a row prices, and that the unknown stays unpriced."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inspect_ai.model import ModelCost, ModelUsage, compute_model_cost

from control_tower.errors import OperationError, ValidationError
from control_tower.models.cost import Cost, cost_of_usage
from control_tower.models.rate_sources import Prices
from control_tower.models.rates import Pricing, RateTable, Tier, read_rates


def table(*models: str, **pricing: Any) -> dict[str, Any]:
    """A rate table as JSON."""
    row = {"input_per_million": 1.0, "output_per_million": 2.0, "cached_input_per_million": 0.1, **pricing}
    return {"rows": [{"model": model, "pricing": row} for model in models]}


def tiers(*limits: int | None) -> list[dict[str, Any]]:
    """Tiers that end at these lengths of the prompt."""
    prices = {"input_per_million": 1.0, "output_per_million": 2.0, "cached_input_per_million": 0.1}
    return [{**prices, "max_input_tokens": limit} for limit in limits]


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTROL_TOWER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CONTROL_TOWER_CONFIG_DIR", str(tmp_path / "config"))
    monkeypatch.delenv("CONTROL_TOWER_MODEL_RATES", raising=False)
    monkeypatch.delenv("CONTROL_TOWER_PRICING", raising=False)


@pytest.mark.parametrize(
    ("row", "model"),
    [
        ("openai/gpt-x", "openai/gpt-x"),
        ("gpt-x", "openai/gpt-x"),
        ("openai/gpt-x", "openrouter/openai/gpt-x"),
        ("gpt-x", "openai/gpt-x-20260101"),
        ("gpt-x", "openai/gpt-x-2026-01-01"),
        ("claude-haiku-4-5", "openrouter/anthropic/claude-haiku-4.5"),
        ("claude-haiku-4-5-20251001", "anthropic/claude-haiku-4-5"),
    ],
)
def test_a_row_prices_the_spellings_of_its_model(row: str, model: str) -> None:
    assert RateTable.model_validate(table(row)).find(model) is not None


@pytest.mark.parametrize(
    ("rows", "model"),
    [
        (["gpt-x"], "openai/gpt-x-mini"),
        (["gpt-x-mini"], "openai/gpt-x"),
        (["gpt"], "openai/gpt-x"),
        (["m-20250101", "m-20260101"], "a/m"),
        ([], "openai/gpt-x"),
    ],
)
def test_another_model_is_unpriced(rows: list[str], model: str) -> None:
    assert RateTable.model_validate(table(*rows)).find(model) is None


def test_the_users_file_goes_before_the_shipped_prices(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shipped = Prices().find("openai/gpt-5-nano")
    assert shipped is not None
    assert (shipped.input_per_million, shipped.output_per_million) == (0.05, 0.4)
    own = tmp_path / "rates.json"
    own.write_text(json.dumps(table("openai/gpt-5-nano", input_per_million=7.0)))
    monkeypatch.setenv("CONTROL_TOWER_MODEL_RATES", str(own))
    mine = Prices().find("openai/gpt-5-nano")
    assert mine is not None
    assert mine.input_per_million == 7.0


def test_a_model_of_a_similar_name_has_no_shipped_price() -> None:
    assert Prices().find("openai/gpt-5-nano-ours") is None


def test_pricing_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTROL_TOWER_PRICING", "off")
    assert Prices().table(["openai/gpt-5-nano"]).rows == ()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"rows": []}',
        '{"rows": [{"model": "x"}]}',
        '{"rows": [{"model": "x", "extra": 1}]}',
        json.dumps(table("x", input_per_million=-1.0)),
        json.dumps(table("x", output_per_million=math.nan)),
        json.dumps(table("x", tiers=[])),
        json.dumps(table("x", tiers=tiers(200, None, 300))),
        json.dumps(table("x", tiers=tiers(300, 200, None))),
        json.dumps(table("x", tiers=tiers(200, 200, None))),
        json.dumps(table("x", tiers=tiers(200))),
    ],
)
def test_a_bad_rate_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rates.json"
    path.write_text(text)
    with pytest.raises(OperationError, match=r"rates\.json"):
        read_rates(path)


def test_an_empty_cache_of_rates_is_named(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "model_rates.json").write_text('{"rows": []}')
    with pytest.raises(OperationError, match=r"model_rates\.json is empty"):
        Prices()


COUNTS = st.integers(0, 10_000_000)
DOLLARS = st.floats(0, 1_000)


@given(st.tuples(*[COUNTS] * 4), st.tuples(*[DOLLARS] * 4), st.booleans())
def test_our_price_of_a_call_is_the_one_that_inspect_stamps(
    counts: tuple[int, ...], dollars: tuple[float, ...], hour: bool
) -> None:
    names = ("input_tokens", "input_tokens_cache_read", "input_tokens_cache_write", "output_tokens")
    usage = dict(zip(names, counts, strict=True))
    uncached, read, multiplier, output = dollars
    pricing = Pricing(
        input_per_million=uncached,
        output_per_million=output,
        cached_input_per_million=read,
        cache_write_multiplier=multiplier,
    )
    inspects = ModelCost(
        input=uncached, output=output, input_cache_read=read, input_cache_write=uncached * multiplier
    )
    stamped = compute_model_cost(inspects, ModelUsage.model_validate(usage), "1h" if hour else None)
    assert pricing.dollars(usage, hour=hour) == pytest.approx(stamped, rel=1e-9)


@given(st.lists(st.integers(1, 1_000), min_size=1, unique=True), st.integers(0, 1_200))
def test_a_prompt_is_in_the_first_tier_that_it_fits(limits: list[int], prompt: int) -> None:
    rising = [*sorted(limits), None]
    pricing = Pricing.model_validate({**table("x")["rows"][0]["pricing"], "tiers": tiers(*rising)})
    expected = next((limit for limit in sorted(limits) if prompt <= limit), None)
    tier = pricing.at(prompt)
    assert isinstance(tier, Tier)
    assert tier.max_input_tokens == expected


def test_a_missing_rate_file_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTROL_TOWER_MODEL_RATES", str(tmp_path / "none.json"))
    with pytest.raises(OperationError, match=r"none\.json"):
        Prices()


def test_a_sum_says_when_something_is_missing_from_it() -> None:
    known, unknown = (
        cost_of_usage({"total_tokens": 5, "total_cost": 0.25}),
        cost_of_usage({"total_tokens": 5}),
    )
    assert str(known) == "$0.2500"
    assert str(unknown) == "unpriced"
    assert known + unknown == Cost(0.25, incomplete=True)
    assert str(known + unknown) == "$0.2500+"
    assert str(Cost()) == "—"
    assert str(cost_of_usage({"total_tokens": 5, "total_cost": 0.0})) == "$0.0000"


def test_an_unknown_source_of_prices_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONTROL_TOWER_PRICING", "guess")
    with pytest.raises(ValidationError, match="file, api or off"):
        Prices()
