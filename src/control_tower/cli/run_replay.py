"""What `ct run replay` does: `ct run eval --policy replay --from-run LOG`, scored as the log was."""

from collections.abc import Collection, Mapping
from typing import Any, get_args

from control_tower.cli.output import Format
from control_tower.cli.run_eval import fleet_of, play, run_config
from control_tower.evals.recordings import recorded_log
from control_tower.evals.run_config import LandingProbe
from control_tower.logs.json_text import child

_NOTHING: dict[str, Any] = {
    "task_file": (),
    "expand_all": False,
    "just_main_tasks": False,
    "just_side_tasks": False,
    "env_only": False,
    "env_args": (),
    "policy_args": (),
    "untrusted_policy": None,
    "untrusted_policy_args": (),
    "untrusted_model": None,
    "main_tasks_with_no_scorers": "include",
}
"""What a replay leaves open of the options of `ct run eval`."""


def run_replay_command(
    source: str,
    options: Mapping[str, Any],
    given: Collection[str],
    output_format: Format,
    *,
    check: bool,
) -> int:
    """Replay a log and compare.

    Args:
        source: the log.
        options: those of `ct run eval` that a replay has.
        given: the names of those that the user gave; how it is scored is taken from the log otherwise.
        output_format: `table` or `json`.
        check: end with 1 when a task score or a landing is another one than recorded.

    Returns:
        The exit code: 0, or 1 when samples errored, the run did not finish, or the check failed.
    """
    metadata = recorded_log(source).metadata
    filled: dict[str, Any] = {**_NOTHING, **options, "policy": "replay", "from_run": source}
    probe = metadata.get("landing_probe")
    if "landing_probe" not in given and probe in get_args(LandingProbe):
        filled["landing_probe"] = probe
    if "score_main_on_attack" not in given:
        filled["score_main_on_attack"] = bool(child(metadata, "eval_args").get("score_main_on_attack"))
    config = run_config("eval", filled)
    return play(
        config,
        options["log_dir"],
        output_format,
        smoke=options["smoke"],
        resume=options["resume"],
        check=check,
        upload="always" if options["upload"] else "never",
        fleet=fleet_of(options, config),
    )
