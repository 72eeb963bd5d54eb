"""The header of a log: everything about a run that its readers need, and its name."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import control_tower
from control_tower.environments.environment import env_path
from control_tower.evals.git import git_state
from control_tower.evals.plan import RunPlan, Side
from control_tower.evals.run_config import DEFAULT_POLICIES, Kind, RunConfig, Stream
from control_tower.logs.attempts import FINGERPRINT
from control_tower.monitors.config import files_of, monitors_in, sources_of

EVAL_VERSION = "3.0"
"""The log format that is written."""


def policy_display(kind: Kind, policies: Mapping[Stream, str], protocol: str) -> str:
    """The pairing of a run: `<policy>-vs-<protocol>` or `<honest>+<attack>-vs-<protocol>`."""
    honest, attack = policies["honest"], policies["attack"]
    return f"{honest if kind == 'eval' else f'{honest}+{attack}'}-vs-{protocol}"


def header_metadata(plan: RunPlan) -> dict[str, Any]:
    """The `metadata` of a log's header."""
    config = plan.config
    task_set = _task_set(plan)
    ct_git = git_state(Path(control_tower.__file__).parent)
    selection = config.task_selection
    return {
        "eval_version": EVAL_VERSION,
        "run_name": config.run_name or _default_name(plan, task_set),
        "policy": policy_display(
            config.kind, {s: side.entry.name for s, side in plan.policies.items()}, plan.protocol.entry.name
        ),
        "task_set": task_set,
        "tags": list(config.tags),
        "command": plan.command,
        "ct_version": f"v{control_tower.__version__}" + (f"+{ct_git.commit[:8]}" if ct_git.commit else ""),
        "ct_setting_sdk_version": None,
        "ct_git": ct_git.model_dump(),
        "env_versions": _env_versions(plan),
        "locally_loaded": _locally_loaded(*plan.policies.values(), plan.protocol),
        "script_start_time": plan.started.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        **_policy_fields("selection", lambda stream: config.policies[stream].model_dump(mode="json"), config),
        "protocol_selection": config.protocol.model_dump(mode="json"),
        **_policy_fields("args", lambda stream: plan.policies[stream].recorded_args(), config),
        "protocol_args": plan.protocol.recorded_args(),
        "monitor_prompts": sources_of(monitors_in(plan.protocol.args)),
        "task_selection": {
            "environments": list(selection.environments),
            "main_tasks": list(selection.main_tasks),
            "side_tasks": list(selection.side_tasks),
            "task_file": _basenames(selection.task_file),
            "from_run": Path(selection.from_run).name if selection.from_run else None,
            "limit": selection.limit,
            "expand_all": selection.expand_all,
            "honest": plan.streams.honest,
            "main_tasks_with_no_scorers": selection.main_tasks_with_no_scorers,
            "env_args": sorted(selection.env_args),
        },
        "sandbox_config": {
            "use_ec2": False,
            "ec2": None,
            "allow_internet": False,
            "allow_internet_simulator": False,
            "allow_intranet": False,
            "sandbox": _sandbox(plan),
            "sandbox_args": config.sandbox.sandbox_args,
        },
        "eval_args": {
            "scorer_timeout": config.scorer_timeout,
            "score_main_on_attack": config.score_main_on_attack,
        },
        "white": config.white.model_dump(mode="json"),
        "model_roles": {role: spec.full_name for role, spec in config.model_roles.items()},
        "landing_probe": config.landing_probe,
        FINGERPRINT: plan.fingerprint,
        **plan.marker,
    }


def _policy_fields(
    what: str, of_stream: Callable[[Stream], dict[str, Any]], config: RunConfig
) -> dict[str, Any]:
    """The fields about policies: those of the run's kind filled, the others null."""
    fields: dict[str, Stream] = {"policy": "honest", "honest_policy": "honest", "attack_policy": "attack"}
    return {
        f"{field}_{what}": of_stream(stream) if field in DEFAULT_POLICIES[config.kind] else None
        for field, stream in fields.items()
    }


def _default_name(plan: RunPlan, task_set: str | None) -> str:
    config = plan.config
    typed: dict[Stream, str] = {stream: ref.name for stream, ref in config.policies.items()}
    name = policy_display(config.kind, typed, config.protocol.name)
    return f"{name}-{task_set}" if task_set else name


def _task_set(plan: RunPlan) -> str | None:
    selection = plan.config.task_selection
    if selection.task_file:
        return plan.task_set_name
    if selection.main_tasks or selection.side_tasks or selection.from_run:
        return None
    return f"all_{plan.started:%b}_{plan.started.day}".lower()


def _sandbox(plan: RunPlan) -> str:
    """The sandbox that is really used; what was asked for where environments differ."""
    types = {choice.type for choice in plan.sandboxes.values()}
    return types.pop() if len(types) == 1 else plan.config.sandbox.sandbox


def _basenames(files: tuple[str, ...]) -> str | list[str] | None:
    names = [Path(file).name for file in files]
    if not names:
        return None
    return names[0] if len(names) == 1 else names


def _env_versions(plan: RunPlan) -> dict[str, Any]:
    versions: dict[str, Any] = {}
    for env_id, one in plan.environments.items():
        folder = env_path(one.found.env)
        state = git_state(folder) if folder else None
        versions[env_id] = {
            "repo": one.found.setting,
            "commit": state.commit if state else None,
            "dirty": state.dirty if state else None,
            "remote_url": state.remote_url if state else None,
            "image_tag": None,
        }
    return versions


def _locally_loaded(*sides: Side) -> list[dict[str, str]] | None:
    files = [side.entry.locally_loaded for side in sides if side.entry.locally_loaded]
    files += [file for side in sides for file in files_of(monitors_in(side.args))]
    listed = [{key: str(value) for key, value in file.items()} for file in files]
    return [file for i, file in enumerate(listed) if file not in listed[:i]] or None
