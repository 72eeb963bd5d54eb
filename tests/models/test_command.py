"""`ct models`: aliases with their roles, and the rate table that a run would use."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from control_tower.cli.models import models
from control_tower.errors import OperationError, UsageError
from control_tower.models.rate_sources import Prices
from control_tower.models.rates import read_rates


def ct_models(*words: str) -> Result:
    """Run `ct models`."""
    return CliRunner().invoke(models, words)


@pytest.fixture(autouse=True)
def _own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CONTROL_TOWER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("CONTROL_TOWER_CONFIG_DIR", str(tmp_path / "config"))
    for name in ("CONTROL_TOWER_MODEL_RATES", "CONTROL_TOWER_PRICING", "USE_OPENROUTER"):
        monkeypatch.delenv(name, raising=False)


def a_table(path: Path, **prices: float) -> None:
    """A rate table with models at these input prices."""
    rows = [
        {
            "model": model,
            "pricing": {"input_per_million": price, "output_per_million": 0, "cached_input_per_million": 0},
        }
        for model, price in prices.items()
    ]
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps({"rows": rows}))


def test_the_alias_of_each_default_role_is_named() -> None:
    rows = json.loads(ct_models("list", "--format", "json").output)
    assert {row["alias"]: row["default_of"] for row in rows if row["default_of"]} == {
        "trusted": ["trusted"],
        "untrusted": ["untrusted"],
    }


def test_each_price_says_where_it_was_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_table(tmp_path / "own.json", own=1.0, both=2.0)
    a_table(tmp_path / "cache" / "model_rates.json", both=3.0, cached=4.0)
    monkeypatch.setenv("CONTROL_TOWER_MODEL_RATES", "own.json")
    asked = ("x/own", "x/both", "x/cached", "trusted", "demo/judge", "x/unknown")
    rows = json.loads(ct_models("rates", *asked, "--format", "json").output)
    shown = [(r["model"], r["source"], r["pricing"] and r["pricing"]["input_per_million"]) for r in rows]
    assert shown == [
        ("x/own", "file", 1.0),
        ("x/both", "file", 2.0),
        ("x/cached", "cache", 4.0),
        ("openai/gpt-5-nano", "genai-prices", 0.05),
        ("demo/judge", "built in", 0.1),
        ("x/unknown", "unpriced", None),
    ]


def test_long_prompts_have_a_line_of_their_own() -> None:
    lines = [line.split() for line in ct_models("rates", "smart").output.splitlines()]
    assert [line[1:-1] for line in lines[1:]] == [
        ["up", "to", "272,000", "10", "1", "12.5", "50"],
        ["longer", "20", "2", "25", "75"],
    ]


def test_a_written_table_prices_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = ct_models("rates", "smart", "haiku", "x/unknown", "--write", "table.json")
    assert "x/unknown" in seen.stderr
    names = ["openai/gpt-6-astra", "anthropic/claude-haiku-4-5"]
    expected = {name: Prices().find(name) for name in names}
    assert [row.model for row in read_rates(tmp_path / "table.json").rows] == names
    monkeypatch.setenv("CONTROL_TOWER_MODEL_RATES", "table.json")
    prices = Prices()
    assert {name: prices.find(name) for name in names} == expected
    assert {prices.priced(name).source for name in names} == {"file"}


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["rates", "smrt"], UsageError),
        (["rates", "x/unknown", "--write", "table.json"], OperationError),
        (["rates", "haiku", "--write", "no/such/folder.json"], OperationError),
    ],
)
def test_what_cannot_be_done_is_said(words: list[str], error: type[Exception]) -> None:
    assert isinstance(ct_models(*words).exception, error)
