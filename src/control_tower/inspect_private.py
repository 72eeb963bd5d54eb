"""The few private names of Inspect that we need, each behind a small function with a test of its own."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from copy import copy
from glob import escape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

if TYPE_CHECKING:
    from inspect_ai.log import EvalLog, EvalResults, EvalSampleReductions
    from inspect_ai.log._log import EvalScorer
    from inspect_ai.model import Model
    from inspect_ai.scorer import SampleScore, ScoreReducer
    from inspect_ai.util import SandboxEnvironment

T = TypeVar("T")


def with_role(model: "Model", role: str) -> "Model":
    """A copy of `model` whose calls are recorded under `role`.

    `get_model(role=...)` looks the role up in the run's bindings instead, which is not wanted for a
    model that stands in for a role.
    """
    named = copy(model)
    named._set_role(role)  # pyright: ignore[reportPrivateUsage]
    return named


def sample_epoch() -> int:
    """The epoch of the sample that is running, from 1; 1 outside a sample."""
    return running_sample()[1]


def running_sample() -> tuple[str, int, str]:
    """Id, epoch and UUID of the sample that is running; empty, 1 and empty outside a sample.

    The UUID is new in every run; id and epoch are the same whenever the sample is run again.
    """
    from inspect_ai.solver._task_state import sample_state

    state = sample_state()
    return ("", 1, "") if state is None else (str(state.sample_id), state.epoch, state.uuid)


def writing_process(log: Path) -> int | None:
    """The process that is running the eval of a log right now; None when there is none on this machine.

    Inspect keeps the events of running samples in a database whose name ends with the process's id. A
    process that started after the database was last written has merely inherited the number.
    """
    import psutil  # pyright: ignore[reportMissingModuleSource]
    from inspect_ai._util.file import filesystem
    from inspect_ai.log._recorders.buffer.database import location_dir_and_file, resolve_db_dir

    location = str(log)
    folder, name = location_dir_and_file(filesystem(location).path_as_uri(location))
    for database in (resolve_db_dir() / folder).glob(f"{escape(name)}.*.db"):
        number = database.name.rsplit(".", 2)[1]
        try:
            process = psutil.Process(int(number))
            if process.create_time() <= database.stat().st_mtime + 1:
                return process.pid
        except (ValueError, psutil.Error, OSError):
            continue
    return None


def header_model(header: dict[str, Any]) -> "EvalLog":
    """A log's header JSON as Inspect's object, with its defaults but without new ids.

    Raises:
        pydantic.ValidationError: It is not a header that Inspect reads.
    """
    from inspect_ai._util.constants import get_deserializing_context
    from inspect_ai.log import EvalLog

    return EvalLog.model_validate(header, context=get_deserializing_context())


def scorer_info(log: "EvalLog", scorer: "EvalScorer") -> Any:
    """A scorer of a header with its metrics made from the registry; no file is loaded for them.

    Raises:
        LookupError: A metric is not installed.
        TypeError: A metric takes other options.
    """
    from inspect_ai._eval.score import resolve_scorers_info

    spec = log.eval.model_copy(update={"task_file": None, "scorers": [scorer]})
    return resolve_scorers_info(log.model_copy(update={"eval": spec}))[0]


def score_names(infos: list[Any]) -> list[str]:
    """The names under which samples record the scores of these scorers: made different where equal."""
    from inspect_ai._eval.task.results import _unique_scorer_names  # pyright: ignore[reportPrivateUsage]

    return _unique_scorer_names(infos)


def compute_metrics(
    log: "EvalLog",
    infos: list[Any],
    scores: Sequence[dict[str, "SampleScore"]],
    *,
    total: int,
    completed: int,
) -> "tuple[EvalResults, list[EvalSampleReductions]]":
    """Results and reductions as at the end of an eval.

    Args:
        log: The header: its reducers and headline metric are used.
        infos: From `scorer_info`.
        scores: By scorer name, for each sample that has any; names without a scorer must not occur.
        total: Samples times epochs.
        completed: Samples without an error.
    """
    from inspect_ai._eval.score import reducers_from_log_header
    from inspect_ai._eval.task.results import eval_results

    results, reductions = eval_results(
        total,
        list(scores),
        reducers_from_log_header(log),
        infos,
        None,
        completed_samples=completed,
        headline_metric=log.eval.headline_metric,
    )
    return results, reductions or []


def load_hooks_quietly() -> None:
    """Load Inspect's hooks now, without the banner about them that Inspect would print on stdout."""
    from contextlib import redirect_stdout
    from io import StringIO

    from inspect_ai.hooks._startup import init_hooks

    with redirect_stdout(StringIO()):
        init_hooks()


def watch_errors(seen: Callable[[BaseException], None]) -> None:
    """Have `seen` called with each exception that Inspect from now on records as a sample's or a log's error.

    Inspect keeps their texts only, and hooks are not told of them.
    """
    from inspect_ai._eval import run as eval_run
    from inspect_ai._eval.task import error as task_error
    from inspect_ai._eval.task import run as task_run

    name = "eval_error"
    for module in (eval_run, task_error, task_run):
        setattr(module, name, _watched(getattr(module, name), seen))


def _watched(record: Callable[..., T], seen: Callable[[BaseException], None]) -> Callable[..., T]:
    def watched(exception: BaseException, *args: Any) -> T:
        seen(exception)
        return record(exception, *args)

    return watched


def sample_summary(sample: dict[str, Any]) -> dict[str, Any]:
    """The summary that Inspect would keep of a sample of a log, both as JSON.

    Raises:
        pydantic.ValidationError: It is not a sample that Inspect reads.
    """
    from inspect_ai._util.constants import get_deserializing_context
    from inspect_ai.log import EvalSample
    from pydantic_core import to_jsonable_python

    read = EvalSample.model_validate(sample, context=get_deserializing_context())
    return to_jsonable_python(read.summary(), exclude_none=True)


def docker_provider() -> "type[SandboxEnvironment]":
    """Inspect's own Docker sandbox class."""
    from inspect_ai.util._sandbox.docker.docker import DockerSandboxEnvironment

    return DockerSandboxEnvironment


def sandbox_types() -> list[str]:
    """The names of all sandbox types that are registered with Inspect, other packages' too."""
    from inspect_ai._util.entrypoints import ensure_entry_points
    from inspect_ai._util.registry import registry_find, registry_unqualified_name

    ensure_entry_points()
    found = registry_find(lambda info: info.type == "sandboxenv")
    return sorted({registry_unqualified_name(item) for item in found})


async def gather(functions: "Iterable[Callable[[], Awaitable[T]]]") -> "list[T]":
    """Run functions at the same time; their results in order, or the first exception as it is."""
    from inspect_ai._util._async import tg_collect

    return await tg_collect(functions)


def score_reducers() -> list[str]:
    """The names of all score reducers that are registered with Inspect, other packages' too."""
    import_module("inspect_ai.scorer")  # registers its own
    from inspect_ai._util.entrypoints import ensure_entry_points
    from inspect_ai._util.registry import registry_find, registry_log_name

    ensure_entry_points()
    return sorted(
        {registry_log_name(item) for item in registry_find(lambda info: info.type == "score_reducer")}
    )


def score_reducer(name: str, args: dict[str, Any]) -> "ScoreReducer":
    """A score reducer that is registered with Inspect.

    Raises:
        TypeError: it does not take these arguments.
    """
    from inspect_ai._util.registry import create_registry_object

    return cast("ScoreReducer", create_registry_object("score_reducer", name, args))


def tool_timeout(message: str, output: str | None) -> TimeoutError:
    """The error of a command that timed out, with what it had printed by then, which Inspect keeps."""
    from inspect_ai.util._sandbox.events import SandboxTimeoutError

    return SandboxTimeoutError(message, output)
