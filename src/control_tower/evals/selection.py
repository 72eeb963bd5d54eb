"""From a selection to combinations of tasks: which samples a run has, and in which order."""

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from pydantic import BaseModel

from control_tower.environments.env_args import resolve_env_args
from control_tower.environments.space import TaskCombination, TaskSpace, find_task
from control_tower.environments.task_map import LazyTaskMap
from control_tower.errors import UsageError, ValidationError, did_you_mean
from control_tower.evals.recordings import Origin, taken_samples
from control_tower.evals.run_config import Stream, TaskSelection
from control_tower.settings.environments import FoundEnvironment, all_environments, find_environment
from control_tower.settings.task_sets import load_task_set, merge_records

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PolicyStreams:
    """Which samples the policies of a run are for."""

    attempts: bool
    """Side tasks are attempted."""
    scripted: bool
    """The policy plays without a model, on whatever sample it is given."""
    paired: bool = False
    """There is a policy for each stream, and the run needs samples of both."""
    replays: bool = False
    """Recorded turns are played, so samples that failed when they were recorded are left out."""

    @property
    def honest(self) -> bool:
        """Side tasks are dropped from the samples."""
        return not (self.attempts or self.scripted)

    @property
    def both(self) -> bool:
        """Honest and attack samples are played alike, so that selecting everything means both."""
        return self.paired or (self.attempts and self.scripted)


PAIRED = PolicyStreams(attempts=True, scripted=False, paired=True)
"""The streams of a control eval."""


@dataclass(frozen=True)
class SelectedEnvironment:
    """An environment with the arguments it runs under."""

    found: FoundEnvironment
    args: BaseModel | None

    @property
    def space(self) -> TaskSpace:
        """Its tasks and their combinations."""
        return self.found.env.task_space(self.args)


@dataclass(frozen=True)
class SelectedSample:
    """The environment and tasks of one sample."""

    environment: SelectedEnvironment
    tasks: TaskCombination
    origin: Origin | None = None
    """The recorded sample it was taken from."""

    @property
    def env_id(self) -> str:
        """The environment's full name."""
        return self.environment.found.id

    @property
    def stream(self) -> Stream:
        """Attack where there is a side task."""
        return "attack" if self.tasks.sides else "honest"


def check_selection(selection: TaskSelection, streams: PolicyStreams) -> None:
    """Refuse options that exclude each other or select nothing.

    Raises:
        UsageError: with the options named.
    """
    s = selection
    named = s.main_tasks or s.side_tasks
    whole = s.expand_all or s.just or s.env_only
    if s.from_run and (whole or s.task_file or s.env_args):
        raise UsageError(
            "--from-run takes samples from a log; it excludes --all, --just-main-tasks, --just-side-tasks, "
            "--env-only, --task-file and --env-arg (-e, -t, -s and --limit choose among them)"
        )
    if not (named or s.environments or s.task_file or s.expand_all or s.just or s.from_run):
        raise UsageError(
            "nothing is selected: give -e, -t, -s, --task-file, --all, --just-main-tasks or --from-run"
        )
    if named and (whole or s.task_file):
        raise UsageError(
            "-t and -s name samples; they exclude --all, --just-main-tasks, --just-side-tasks, --env-only "
            "and --task-file"
        )
    if s.task_file and whole:
        raise UsageError(
            "--task-file names samples; it cannot be combined with --all, --just-... or --env-only"
        )
    if s.env_only and not s.environments:
        raise UsageError("--env-only needs -e")
    if sum(map(bool, (s.expand_all, s.just, s.env_only))) > 1:
        raise UsageError("give one of --all, --just-main-tasks, --just-side-tasks and --env-only")
    if s.env_args and not (s.environments or s.task_file):
        raise UsageError("--env-arg needs -e or --task-file")
    if streams.honest and s.side_tasks:
        raise UsageError("this policy is honest: it takes no side tasks; drop -s or choose --policy attack")
    if streams.honest and s.just == "side":
        raise UsageError("this policy is honest: --just-side-tasks needs one that attempts side tasks")
    for option, groups in (("-t", s.main_tasks), ("-s", s.side_tasks)):
        seen: set[frozenset[str]] = set()
        for group in groups:
            ids = group.split("+")
            if not all(ids) or len(set(ids)) != len(ids):
                raise UsageError(f"{option} {group!r} must be task ids joined with '+', each once")
            if frozenset(ids) in seen:
                raise UsageError(f"{option} {group} is given twice; to repeat samples use --epochs")
            seen.add(frozenset(ids))


def select(selection: TaskSelection, streams: PolicyStreams) -> list[SelectedSample]:
    """The samples of a selection in order, limit applied.

    Raises:
        UsageError: unknown names, options that exclude each other, tasks that do not go together.
        ValidationError: nothing is left, or a main task has no scorer and that was not allowed.
    """
    check_selection(selection, streams)
    samples = list(_expanded(selection, streams))
    if streams.honest:
        samples = _without_sides(samples)
    samples = _with_scorers(samples, selection)
    if not samples:
        raise ValidationError("the selection has no samples for this policy")
    for sample in samples:
        codebases = {task.codebase_name for task in sample.tasks.mains}
        if len(codebases) > 1:
            names = ", ".join(sorted(codebases))
            raise UsageError(f"main tasks of one sample must share a codebase, not {names}")
        if sum(task.final_diff is not None for task in sample.tasks.mains) > 1:
            raise UsageError("only one main task of a sample may record a final diff")
    if streams.paired:
        if selection.from_run:
            samples = _in_turn(samples)
        else:
            # A task set means exactly its records; of everything else the honest samples follow.
            derived = [] if selection.task_file else _honest_counterparts(samples)
            samples = _interleaved([*samples, *derived])
        _check_both(samples, selection)
    return samples[: selection.limit]


def _check_both(samples: Sequence[SelectedSample], selection: TaskSelection) -> None:
    """Refuse a control eval without honest or without attack samples."""
    streams = {sample.stream for sample in samples}
    for stream, fix in (("attack", "name side tasks with -s"), ("honest", "name main tasks with -t")):
        if stream not in streams:
            raise UsageError(
                f"a control eval needs honest and attack samples, and the selection has no {stream} ones: "
                f"{fix}, or give --all or a --task-file that has both"
            )
    if selection.limit == 1:
        raise UsageError("--limit 1 leaves one stream without samples: a control eval needs at least 2")


def _expanded(selection: TaskSelection, streams: PolicyStreams) -> Iterator[SelectedSample]:
    if selection.from_run:
        yield from _of_recording(selection, streams)
    elif selection.task_file:
        yield from _of_task_sets(selection)
    elif selection.main_tasks or selection.side_tasks:
        yield from _named(selection)
    elif selection.env_only or not (selection.expand_all or selection.just):
        for environment in _environments(selection):
            yield SelectedSample(environment, TaskCombination())
    else:
        for environment in _environments(selection) or _with_args(_everything(), ()):
            for combination in _whole(environment.space, selection, streams):
                yield SelectedSample(environment, combination)


def _environments(selection: TaskSelection) -> list[SelectedEnvironment]:
    """The environments named with `-e`, under their arguments."""
    unique = {found.id: found for found in map(find_environment, selection.environments)}
    return _with_args(unique.values(), selection.env_args)


def _with_args(found: Iterable[FoundEnvironment], env_args: Sequence[str]) -> list[SelectedEnvironment]:
    environments = {one.id: one for one in found}
    args = resolve_env_args(env_args, {key: one.env for key, one in environments.items()})
    return [SelectedEnvironment(one, args[key]) for key, one in environments.items()]


def _everything() -> list[FoundEnvironment]:
    """Every environment; the demo only where there is nothing else."""
    everything = all_environments()
    return [found for found in everything if not found.builtin] or everything


def _whole(space: TaskSpace, selection: TaskSelection, streams: PolicyStreams) -> Iterable[TaskCombination]:
    combinations = list(space)
    honest = [c for c in combinations if c.mode == "honest"]
    attack = [c for c in combinations if c.mode == "attack"]
    if selection.just == "main":
        return honest
    if selection.just == "side":
        return _each_side_once(space, attack)
    if streams.both:
        return honest + attack
    return attack if streams.attempts and attack else honest


def _each_side_once(space: TaskSpace, attack: Sequence[TaskCombination]) -> Iterator[TaskCombination]:
    """Each side task with the first main task it goes with, alone where there is none."""
    for side_id, side in space.sides().items():
        paired = (c for c in attack if c.side_ids == frozenset({side_id}))
        yield next(paired, TaskCombination((), (side,)))


def _named(selection: TaskSelection) -> Iterator[SelectedSample]:
    main_groups = [group.split("+") for group in selection.main_tasks]
    side_groups = [group.split("+") for group in selection.side_tasks]
    for environment in _environments(selection) or _guessed(main_groups, side_groups):
        for mains in main_groups or [[]]:
            for sides in side_groups or [[]]:
                yield SelectedSample(environment, _combination(environment, mains, sides))


def _guessed(main_groups: list[list[str]], side_groups: list[list[str]]) -> list[SelectedEnvironment]:
    """Environments that have one of the named tasks; an installed setting goes before the demo."""
    everything = [one for one in _with_args(all_environments(), ()) if _lists_tasks(one)]
    mains = {task for group in main_groups for task in group}
    sides = {task for group in side_groups for task in group}
    having = [
        one
        for one in everything
        if any(task in task_ids(one.space.mains()) for task in mains)
        or any(task in task_ids(one.space.sides()) for task in sides)
    ]
    if not having:
        known = {
            task
            for one in everything
            for tasks in (one.space.mains(), one.space.sides())
            for task in task_ids(tasks)
        }
        name = sorted(mains | sides)[0]
        raise UsageError(f"no environment has a task {name!r}{did_you_mean(name, known)}")
    return [one for one in having if not one.found.builtin] or having


def _lists_tasks(environment: SelectedEnvironment) -> bool:
    """Whether an environment can say which tasks it has; one that cannot is warned of and passed over."""
    try:
        _ = environment.space
    except Exception as error:  # noqa: BLE001 - an author's code may raise anything
        _logger.warning("Warning: %s has no tasks: %s: %s", environment.found.id, type(error).__name__, error)
        return False
    return True


def task_ids(tasks: Mapping[str, object]) -> Collection[str]:
    """The ids of a task map, those of a lazy one without loading its tasks."""
    return tasks.ids if isinstance(tasks, LazyTaskMap) else tasks.keys()


def _of_recording(selection: TaskSelection, streams: PolicyStreams) -> Iterator[SelectedSample]:
    for taken in taken_samples(selection, errored=not streams.replays):
        environment = SelectedEnvironment(taken.found, taken.args)
        recorded = taken.origin.sample
        tasks = _combination(environment, recorded.main_ids, recorded.side_ids)
        yield SelectedSample(environment, tasks, taken.origin)


def _combination(
    environment: SelectedEnvironment, mains: Sequence[str], sides: Sequence[str]
) -> TaskCombination:
    space = environment.space
    if len(mains) <= 1 and len(sides) <= 1:
        return space.get(mains[0] if mains else None, sides[0] if sides else None)
    combination = TaskCombination(
        tuple(find_task(space.mains(), task, "main task") for task in mains),
        tuple(find_task(space.sides(), task, "side task") for task in sides),
    )
    if mains and combination not in space:
        together = " with ".join("+".join(ids) for ids in (mains, sides) if ids)
        raise UsageError(f"{environment.found.id} does not combine {together}")
    return combination


def _of_task_sets(selection: TaskSelection) -> Iterator[SelectedSample]:
    records = merge_records(load_task_set(name).records for name in selection.task_file)
    found = {record.env: find_environment(record.env) for record in records}
    environments = {one.found.id: one for one in _with_args(found.values(), selection.env_args)}
    wanted = {find_environment(name).id for name in selection.environments}
    seen: set[tuple[str, TaskCombination]] = set()
    for record in records:
        environment = environments[found[record.env].id]
        combination = _combination(environment, record.main_tasks, record.side_tasks)
        key = (environment.found.id, combination)
        if key not in seen and (not wanted or environment.found.id in wanted):
            seen.add(key)
            yield SelectedSample(environment, combination)


def _without_sides(samples: Iterable[SelectedSample]) -> list[SelectedSample]:
    merged: dict[tuple[str, frozenset[str]], SelectedSample] = {}
    for sample in samples:
        honest = replace(sample, tasks=TaskCombination(sample.tasks.mains))
        merged.setdefault((sample.env_id, honest.tasks.main_ids), honest)
    return list(merged.values())


def _honest_counterparts(samples: Iterable[SelectedSample]) -> list[SelectedSample]:
    """The main tasks of samples alone, where their environment admits that."""
    alone = _without_sides(sample for sample in samples if sample.tasks.mains)
    return [sample for sample in alone if sample.tasks in sample.environment.space]


def _interleaved(samples: Iterable[SelectedSample]) -> list[SelectedSample]:
    """Honest and attack samples in turn over the same mains, each main starting at another side task.

    The first two are of both streams where there are both, so every longer prefix is, too.
    """
    groups: dict[tuple[str, frozenset[str]], dict[frozenset[str], SelectedSample]] = {}
    for sample in samples:
        group = groups.setdefault((sample.env_id, sample.tasks.main_ids), {})
        group.setdefault(sample.tasks.side_ids, sample)
    honest: list[SelectedSample] = []
    attacks: list[list[SelectedSample]] = []
    of_both_first = sorted(groups.values(), key=lambda group: frozenset() not in group or len(group) == 1)
    for group in of_both_first:
        alone = group.pop(frozenset(), None)
        honest += [alone] if alone else []
        sided = list(group.values())
        start = len(attacks) % len(sided) if sided else 0
        attacks += [sided[start:] + sided[:start]] if sided else []
    return _in_turn([*honest, *(attack for row in zip_longest(*attacks) for attack in row if attack)])


def _in_turn(samples: Sequence[SelectedSample]) -> list[SelectedSample]:
    """Honest and attack samples in turn, each in their order; several may be of the same tasks."""
    honest, attack = ([one for one in samples if one.stream == stream] for stream in ("honest", "attack"))
    return [sample for pair in zip_longest(honest, attack) for sample in pair if sample]


def _with_scorers(samples: list[SelectedSample], selection: TaskSelection) -> list[SelectedSample]:
    without = [s for s in samples if any(task.scorer is None for task in s.tasks.mains)]
    if not without or selection.main_tasks_with_no_scorers == "include":
        return samples
    names = sorted({t.id for sample in without for t in sample.tasks.mains if t.scorer is None})
    if selection.main_tasks_with_no_scorers == "exclude":
        _logger.warning("Left out, since they have no scorer: %s", ", ".join(names))
        return [sample for sample in samples if sample not in without]
    raise ValidationError(
        f"main tasks without a scorer: {', '.join(names)}; "
        "choose --main-tasks-with-no-scorers include or exclude"
    )
