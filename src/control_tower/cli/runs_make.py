"""`ct runs make` and `ct runs push`: logs become runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from control_tower.cli.output import Format, format_option, print_record, printable

if TYPE_CHECKING:
    from control_tower.client.upload import Uploaded


@click.command()
@click.argument("log", metavar="[FILE]", required=False, type=click.Path(path_type=Path, dir_okay=False))
@click.option("--run-name", metavar="NAME", help="Name of the run.  [default: as in the log]")
@click.option("--policy", metavar="NAME", help="What its policy is called.  [default: as in the log]")
@click.option("--task-set", metavar="NAME", help="What its tasks are called.  [default: as in the log]")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="A tag, instead of the log's. Repeatable.")
@click.option("--description", metavar="TEXT", help="A few words about it.")
@click.option("--new", is_flag=True, help="Make another run, though there may be one of this log.")
@format_option("table", "json")
def make(
    log: Path | None,
    run_name: str | None,
    policy: str | None,
    task_set: str | None,
    tags: tuple[str, ...],
    description: str | None,
    output_format: Format,
    *,
    new: bool,
) -> None:
    """Make a run of a log, so that it can be found again; without FILE of the newest in logs/.

    The log goes to the viewer that `ct login` or CONTROL_TOWER_API_BASE_URL named, else into the local data
    folder. The same log again is the same run, and interrupted uploads go on where they were.
    """
    from control_tower.cli.progress import Progress
    from control_tower.client.unsent import newest_log, sent
    from control_tower.client.upload import Overrides, upload_log
    from control_tower.errors import UsageError

    for option, text in (("--run-name", run_name), ("--policy", policy), ("--task-set", task_set)):
        if text == "":
            raise UsageError(f"{option} is empty; leave it out for what the log says")
    if log is None:
        log = newest_log()
        click.echo(f"{log}: the newest log", err=True)
    overrides = Overrides(run_name, policy, task_set, tags or None, description)
    with Progress() as progress:
        made = upload_log(log, overrides, new=new, progress=progress)
    sent(log)
    show_made(made, log, output_format)


@click.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path, file_okay=False))
@format_option("table", "json")
def push(folder: Path | None, output_format: Format) -> int:
    """Upload the logs in a folder that could not be uploaded when their runs ended.

    FOLDER is where logs go unless it is given. Ends with 1 when a log still cannot be uploaded.
    """
    from control_tower.cli.output import print_rows
    from control_tower.cli.progress import Progress
    from control_tower.client.unsent import log_dir, sent, unsent_logs
    from control_tower.client.upload import Overrides, upload_log
    from control_tower.errors import ExpectedError, UsageError

    if folder is not None and not folder.is_dir():
        raise UsageError(f"{folder}: there is no such folder")
    rows: list[dict[str, Any]] = []
    failed = False
    for waiting in unsent_logs(folder or log_dir()):
        row: dict[str, Any] = {"log": str(waiting.log), "url": None, "error": None}
        try:
            wanted = Overrides(name=waiting.name, tags=waiting.tags)
            with Progress() as progress:
                made = upload_log(waiting.log, wanted, url=waiting.viewer, progress=progress)
            sent(waiting.log)
            row |= {"run_id": made.run_id, "url": made.url}
        except ExpectedError as error:
            row["error"], failed = str(error), True
        rows.append(row)
    print_rows(rows, output_format, ["log", "url", "error"])
    return int(failed)


def show_made(made: "Uploaded", log: Path, output_format: Format) -> None:
    """Print a run that was made."""
    if output_format == "json":
        print_record({**vars(made), "eval": str(log)}, output_format)
        return
    click.echo(f"Run: {printable(made.url)}")
    click.echo(f"{'Eval log: ' if made.existing else 'Uploaded eval log to '}{printable(made.eval_log_url)}")
    click.echo(f"Trajectories: {made.trajectories}")
    if made.existing:
        click.echo(f"{log}: was there already; --new makes another run of it", err=True)
