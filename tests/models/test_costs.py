"""What a log's calls cost: by role and model, with cached answers and unknown prices said, by hand."""

from pathlib import Path
from typing import Any

import pytest
from inspect_ai import Task
from inspect_ai import eval as inspect_eval
from inspect_ai.dataset import Sample
from inspect_ai.model import ModelOutput, ModelUsage, get_model
from inspect_ai.solver import generate

from control_tower.evals.results import Results, Tally
from control_tower.evals.table import result_lines
from control_tower.logs.archive import EvalArchive
from control_tower.logs.costs import (
    CostsByRole,
    FindPrice,
    LogCosts,
    by_model,
    by_role,
    log_costs,
    payments,
    total,
)
from control_tower.logs.json_text import dumps
from control_tower.logs.zip_writer import new_archive
from control_tower.models.cost import NO_ROLE, Cost
from control_tower.models.rates import Pricing, Tier


def costs_by_role(events: list[dict[str, Any]], find: FindPrice | None = None) -> CostsByRole:
    """What events cost by role and model."""
    costs: CostsByRole = {}
    for one in payments(events, find):
        models = costs.setdefault(one.role, {})
        models[one.model] = models.get(one.model, Cost()) + one.cost
    return costs


CLAUDE = Pricing(
    input_per_million=1.0, output_per_million=5.0, cached_input_per_million=0.1, cache_write_multiplier=1.25
)
TIERED = Pricing(
    input_per_million=2.0,
    output_per_million=10.0,
    cached_input_per_million=0.2,
    tiers=(
        Tier(
            input_per_million=2.0,
            output_per_million=10.0,
            cached_input_per_million=0.2,
            max_input_tokens=1_000,
        ),
        Tier(
            input_per_million=4.0,
            output_per_million=15.0,
            cached_input_per_million=0.4,
            cache_write_multiplier=2.0,
            max_input_tokens=None,
        ),
    ),
)
FREE = Pricing(input_per_million=0, output_per_million=0, cached_input_per_million=0)
PRICES = {"anthropic/claude": CLAUDE, "openai/tiered": TIERED, "x/free": FREE}


def usage(
    uncached: int = 0,
    output: int = 0,
    read: int | None = None,
    write: int | None = None,
    cost: float | None = None,
    reasoning: int | None = None,
) -> dict[str, Any]:
    """Inspect's counts of a call."""
    return {
        "input_tokens": uncached,
        "output_tokens": output,
        "total_tokens": uncached + output + (read or 0) + (write or 0),
        "input_tokens_cache_read": read,
        "input_tokens_cache_write": write,
        "reasoning_tokens": reasoning,
        "total_cost": cost,
    }


def call(
    model: str, usage: dict[str, Any] | None, role: str | None = "monitor/m", **more: Any
) -> dict[str, Any]:
    """A model's answer as an event."""
    output = {"model": model, "choices": [{"message": {"role": "assistant"}}], "usage": usage}
    return {"event": "model", "model": model, "role": role, "output": output, **more}


def paid(usd: float | None, role: str | None = "protocol") -> dict[str, Any]:
    """A cost event."""
    return {"event": "info", "source": "cost", "data": {"component": "gpu", "usd": usd, "role": role}}


@pytest.mark.parametrize(
    ("model", "tokens", "millionths"),
    [
        ("anthropic/claude", usage(100, 10), 100 + 50),
        ("anthropic/claude", usage(100, 10, read=1_000), 100 + 50 + 100),
        ("anthropic/claude", usage(100, 10, write=400, cost=650e-6), 100 + 50 + 500),
        # An hour in the prompt cache: 400 x 1.25 x 1.6.
        ("anthropic/claude", usage(100, 10, write=400, cost=950e-6), 100 + 50 + 800),
        ("anthropic/claude", usage(100, 1_000, reasoning=900), 100 + 5_000),
        # The whole prompt decides: 200 + 500 + 300 is within the first tier, one more is not.
        ("openai/tiered", usage(200, 10, read=500, write=300), 400 + 100 + 100 + 600),
        ("openai/tiered", usage(201, 10, read=500, write=300), 804 + 150 + 200 + 2_400),
        ("x/free", usage(10_000, 10_000), 0),
    ],
)
def test_a_call_is_priced_by_hand_made_tables(model: str, tokens: dict[str, Any], millionths: float) -> None:
    costs = costs_by_role([call(model, tokens)], PRICES.get)
    assert costs["monitor/m"][model].usd == pytest.approx(millionths / 1e6)
    assert not costs["monitor/m"][model].incomplete


def test_how_long_a_prompt_was_cached_is_not_guessed() -> None:
    unknown = call("anthropic/claude", usage(100, 10, write=400))
    assert costs_by_role([unknown], PRICES.get)["monitor/m"]["anthropic/claude"] == Cost(650e-6, True)


def test_an_unknown_model_is_unpriced_beside_known_ones() -> None:
    events = [
        call("x/known", usage(10, 1, cost=0.25)),
        call("x/unknown", usage(10, 1)),
        call("x/free", usage(10, 1, cost=0.0)),
    ]
    costs = costs_by_role(events)["monitor/m"]
    assert costs == {
        "x/known": Cost(0.25),
        "x/unknown": Cost(None, incomplete=True),
        "x/free": Cost(0.0),
    }
    assert str(sum(costs.values(), Cost())) == "$0.2500+"


def test_seat_turns_scripts_and_failed_requests_cost_nothing() -> None:
    failed = {"event": "model", "model": "x/m", "role": "trusted", "error": "500", "output": {"choices": []}}
    assert (
        costs_by_role(
            [
                call("eval/x/m", usage(9, 9, cost=9.0), "untrusted"),
                call("scripted/replay", None, "hidden_untrusted"),
            ]
        )
        == {}
    )
    assert total(costs_by_role([failed])) == Cost()


def test_an_answer_without_counts_makes_its_role_incomplete() -> None:
    events = [call("x/m", usage(1, 1, cost=0.5)), call("x/m", None)]
    assert costs_by_role(events) == {"monitor/m": {"x/m": Cost(0.5, incomplete=True)}}


def test_roles_are_told_apart_and_services_are_paid_under_theirs() -> None:
    events = [
        call("x/m", usage(1, 1, cost=0.5), "trusted"),
        call("x/m", usage(1, 1, cost=0.25), None),
        paid(2.0),
        paid(None, "trusted"),
    ]
    costs = costs_by_role(events)
    assert costs == {
        "trusted": {"x/m": Cost(0.5), "gpu": Cost(None, incomplete=True)},
        NO_ROLE: {"x/m": Cost(0.25)},
        "protocol": {"gpu": Cost(2.0)},
    }
    assert by_role(costs)["trusted"] == Cost(0.5, incomplete=True)
    assert by_model(costs)["x/m"] == Cost(0.75)
    # Services are never priced anew.
    assert costs_by_role([paid(2.0)], PRICES.get) == {"protocol": {"gpu": Cost(2.0)}}


def log(path: Path, samples: list[list[dict[str, Any]]], model_usage: dict[str, Any]) -> LogCosts:
    """The costs of a log with these events and counts in its header."""
    with new_archive(path) as writer:
        for number, events in enumerate(samples):
            writer.add(
                f"samples/s{number}_epoch_1.json", dumps({"id": f"s{number}", "epoch": 1, "events": events})
            )
        header = {"version": 2, "status": "success", "eval": {}, "stats": {"model_usage": model_usage}}
        writer.add("header.json", dumps(header))
    with EvalArchive.open(path) as archive:
        return log_costs(archive, PRICES.get)


def test_cached_answers_are_counted_and_priced_in_the_fresh_cost(tmp_path: Path) -> None:
    asked = call("anthropic/claude", usage(100, 10, cost=150e-6))
    again = call("anthropic/claude", usage(100, 10, cost=150e-6), cache="read")
    costs = log(
        tmp_path / "a.eval", [[asked, again], [again]], {"anthropic/claude": usage(100, 10, cost=150e-6)}
    )
    assert costs.cached == 2
    assert total(costs.recorded) == Cost(pytest.approx(150e-6))
    assert total(costs.fresh) == Cost(pytest.approx(450e-6))


def test_a_second_run_that_reads_the_response_cache_says_what_it_would_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INSPECT_CACHE_DIR", str(tmp_path / "cache"))
    answer = ModelOutput.from_content("mockllm/model", "Ready.")
    answer.usage = ModelUsage(input_tokens=100, output_tokens=10, total_tokens=110)
    task = Task([Sample("Ready?")], solver=generate(cache=True))

    def costs() -> LogCosts:
        model = get_model("mockllm/model", custom_outputs=[answer], memoize=False)
        [log] = inspect_eval(task, model, log_dir=str(tmp_path), log_format="eval", display="none")
        with EvalArchive.open(log.location.removeprefix("file://")) as archive:
            return log_costs(archive, {"mockllm/model": CLAUDE}.get)

    first, second = costs(), costs()
    assert (first.cached, second.cached) == (0, 1)
    assert total(second.recorded) == Cost(0.0)
    assert total(first.fresh) == total(second.fresh) == Cost(pytest.approx(150e-6))


@pytest.mark.parametrize(
    ("header", "rest"),
    [
        (usage(300, 30, cost=0.75), Cost(0.5)),
        (usage(300, 30), Cost(None, incomplete=True)),
    ],
)
def test_what_the_header_counts_beyond_the_samples_is_not_lost(
    tmp_path: Path, header: dict[str, Any], rest: Cost
) -> None:
    costs = log(tmp_path / "a.eval", [[call("x/m", usage(100, 10, cost=0.25))]], {"x/m": header})
    assert costs.recorded == {"monitor/m": {"x/m": Cost(0.25)}, NO_ROLE: {"x/m": rest}}


@pytest.mark.parametrize(
    ("costs", "lines"),
    [
        (LogCosts({"trusted": {"a/m": Cost(1.0)}}, {"trusted": {"a/m": Cost(1.0)}}), ["$1.0000", "$1.0000"]),
        (
            LogCosts(
                {"trusted": {"a/m": Cost(1.0), "a/n": Cost(None, True)}, "monitor/m": {"a/m": Cost(0.5)}},
                {"trusted": {"a/m": Cost(1.0), "a/n": Cost(None, True)}, "monitor/m": {"a/m": Cost(0.5)}},
            ),
            ["a/m $0.5000", "$1.0000+ (a/m $1.0000, a/n unpriced)", "$1.5000+"],
        ),
        (
            LogCosts({"trusted": {"a/m": Cost(1.0)}}, {"trusted": {"a/m": Cost(4.0)}}, cached=3),
            ["$1.0000", "$1.0000", "3 answers", "$4.0000 for asking everything again"],
        ),
        (
            LogCosts({"no role": {"a/m": Cost(None, True)}}, {"no role": {"a/m": Cost(4.0)}}),
            ["a/m unpriced", "unpriced", "$4.0000 for asking everything again"],
        ),
    ],
)
def test_the_table_shows_roles_models_and_what_the_cache_saved(costs: LogCosts, lines: list[str]) -> None:
    results = Results(Path("a.eval"), "success", 1, Tally(), Tally(), costs=costs)
    shown = [value for name, value in result_lines(results, []) if name.startswith(("cost", "cached"))]
    assert len(shown) == len(lines)
    assert all(part in value for part, value in zip(lines, shown, strict=True))
