"""From a selection to combinations of tasks: which samples a run has, and in which order."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from control_tower.environments.space import TaskCombination, find_task
from control_tower.errors import UsageError, ValidationError, did_you_mean
from control_tower.evals.run_config import TaskSelection
from control_tower.settings.environments import FoundEnvironment, all_environments, find_environment
from control_tower.settings.task_sets import load_task_set, merge_records


@dataclass(frozen=True)
class PolicyStreams:
    """Which samples a policy is for."""

    attacks: bool
    """It attempts side tasks, or plays whatever the sample has."""
    both: bool
    """It plays honest and attack samples alike, so that selecting everything means both."""

    @property
    def honest(self) -> bool:
        """Side tasks are dropped from its samples."""
        return not self.attacks


@dataclass(frozen=True)
class SelectedSample:
    """The environment and tasks of one sample."""

    found: FoundEnvironment
    tasks: TaskCombination


def check_selection(selection: TaskSelection, streams: PolicyStreams) -> None:
    """Refuse options that exclude each other or select nothing.

    Raises:
        UsageError: with the options named.
    """
    s = selection
    named = s.main_tasks or s.side_tasks
    whole = s.expand_all or s.just or s.env_only
    if s.from_run:
        raise UsageError("--from-run is not available yet: name tasks with -e, -t, -s, --task-file or --all")
    if not (named or s.environments or s.task_file or s.expand_all or s.just):
        raise UsageError("nothing is selected: give -e, -t, -s, --task-file, --all or --just-main-tasks")
    if named and (whole or s.task_file):
        raise UsageError("-t and -s name samples; they cannot be combined with --all, --just-..., --env-only or --task-file")
    if s.task_file and whole:
        raise UsageError("--task-file names samples; it cannot be combined with --all, --just-... or --env-only")
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
            raise UsageError(f"main tasks of one sample must share a codebase, not {', '.join(sorted(codebases))}")
        if sum(task.final_diff is not None for task in sample.tasks.mains) > 1:
            raise UsageError("only one main task of a sample may record a final diff")
    return samples[: selection.limit]


def _expanded(selection: TaskSelection, streams: PolicyStreams) -> Iterator[SelectedSample]:
    if selection.task_file:
        yield from _of_task_sets(selection)
    elif selection.main_tasks or selection.side_tasks:
        yield from _named(selection)
    elif selection.env_only or not (selection.expand_all or selection.just):
        for found in _environments(selection):
            yield SelectedSample(found, TaskCombination())
    else:
        for found in _environments(selection) or _all():
            yield from _whole(found, selection, streams)


def _environments(selection: TaskSelection) -> list[FoundEnvironment]:
    unique = {found.id: found for found in map(find_environment, selection.environments)}
    return list(unique.values())


def _all() -> list[FoundEnvironment]:
    """Every environment; the demo only where there is nothing else."""
    everything = all_environments()
    installed = [found for found in everything if not found.builtin]
    return installed or everything


def _whole(
    found: FoundEnvironment, selection: TaskSelection, streams: PolicyStreams
) -> Iterator[SelectedSample]:
    combinations = list(found.env.task_space())
    honest = [c for c in combinations if c.mode == "honest"]
    attack = [c for c in combinations if c.mode == "attack"]
    if selection.just == "main":
        chosen = honest
    elif selection.just == "side":
        chosen = _each_side_once(found, attack)
    elif streams.both:
        chosen = honest + attack
    else:
        chosen = attack if streams.attacks and attack else honest
    for combination in chosen:
        yield SelectedSample(found, combination)


def _each_side_once(
    found: FoundEnvironment, attack: Sequence[TaskCombination]
) -> Iterator[TaskCombination]:
    """Each side task with the first main task it goes with, alone where there is none."""
    for side_id, side in found.env.task_space().sides().items():
        paired = (c for c in attack if c.side_ids == {side_id})
        yield next(paired, TaskCombination((), (side,)))


def _named(selection: TaskSelection) -> Iterator[SelectedSample]:
    main_groups = [group.split("+") for group in selection.main_tasks]
    side_groups = [group.split("+") for group in selection.side_tasks]
    for found in _environments(selection) or _guessed(main_groups, side_groups):
        for mains in main_groups or [[]]:
            for sides in side_groups or [[]]:
                yield SelectedSample(found, _combination(found, mains, sides))


def _guessed(main_groups: list[list[str]], side_groups: list[list[str]]) -> list[FoundEnvironment]:
    """Environments that have one of the named tasks; an installed setting goes before the demo."""
    everything = all_environments()
    mains = {task for group in main_groups for task in group}
    sides = {task for group in side_groups for task in group}
    having = [
        found
        for found in everything
        if any(task in found.env.task_space().mains() for task in mains)
        or any(task in found.env.task_space().sides() for task in sides)
    ]
    if not having:
        known = {
            task
            for found in everything
            for task in (*found.env.task_space().mains(), *found.env.task_space().sides())
        }
        name = sorted(mains | sides)[0]
        raise UsageError(f"no environment has a task {name!r}{did_you_mean(name, known)}")
    installed = [found for found in having if not found.builtin]
    return installed or having


def _combination(found: FoundEnvironment, mains: Sequence[str], sides: Sequence[str]) -> TaskCombination:
    space = found.env.task_space()
    if len(mains) <= 1 and len(sides) <= 1:
        return space.get(mains[0] if mains else None, sides[0] if sides else None)
    combination = TaskCombination(
        tuple(find_task(space.mains(), task, "main task") for task in mains),
        tuple(find_task(space.sides(), task, "side task") for task in sides),
    )
    if mains and combination not in space:
        together = " with ".join("+".join(ids) for ids in (mains, sides) if ids)
        raise UsageError(f"{found.id} does not combine {together}")
    return combination


def _of_task_sets(selection: TaskSelection) -> Iterator[SelectedSample]:
    wanted = {found.id for found in _environments(selection)}
    for record in merge_records(load_task_set(name).records for name in selection.task_file):
        found = find_environment(record.env)
        if not wanted or found.id in wanted:
            yield SelectedSample(found, _combination(found, record.main_tasks, record.side_tasks))


def _without_sides(samples: Iterable[SelectedSample]) -> list[SelectedSample]:
    merged: dict[tuple[str, frozenset[str]], SelectedSample] = {}
    for sample in samples:
        honest = SelectedSample(sample.found, TaskCombination(sample.tasks.mains))
        merged.setdefault((sample.found.id, honest.tasks.main_ids), honest)
    return list(merged.values())


def _with_scorers(samples: list[SelectedSample], selection: TaskSelection) -> list[SelectedSample]:
    without = [s for s in samples if any(task.scorer is None for task in s.tasks.mains)]
    if not without or selection.main_tasks_with_no_scorers == "include":
        return samples
    if selection.main_tasks_with_no_scorers == "exclude":
        return [sample for sample in samples if sample not in without]
    names = sorted({t.id for sample in without for t in sample.tasks.mains if t.scorer is None})
    raise ValidationError(
        f"main tasks without a scorer: {', '.join(names)}; "
        "choose --main-tasks-with-no-scorers include or exclude"
    )
