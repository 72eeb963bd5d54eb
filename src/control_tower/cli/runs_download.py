"""`ct runs download-eval` and `ct runs download-traj`."""

import shutil
from pathlib import Path
from typing import Any, Literal

import click

LOGS = Path("data/eval-logs")
TRAJECTORIES = Path("data/traj")


@click.command("download-eval")
@click.argument("source", metavar="RUN|S3_URL")
@click.option("--no-cache", is_flag=True, help="Download it though it is here already.")
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Also copy it there.")
def download_eval(source: str, output: Path | None, *, no_cache: bool) -> None:
    """Download a run's log, named by the run's id or URL, or by its own s3:// address.

    It is kept under data/eval-logs/, and downloaded again when the viewer has another. Prints its path.
    s3:// addresses are read with the AWS credentials of the environment.
    """
    from control_tower.cli.progress import Progress
    from control_tower.client.sources import download_archive
    from control_tower.errors import OperationError

    with Progress() as progress:
        path = download_archive(source, LOGS, progress, again=no_cache)
    if output is not None:
        try:
            shutil.copyfile(path, output)
        except OSError as error:
            raise OperationError(f"{output}: cannot be written: {error.strerror}") from error
    click.echo(str(output or path))


@click.command("download-traj")
@click.argument("source", metavar="[RUN|TRAJECTORY]", required=False)
@click.option("-e", "--env", metavar="ENV", help="Only of this environment.")
@click.option("-t", "--main-task", metavar="TASK", help="Only with this main task.")
@click.option("-s", "--side-task", metavar="TASK", help="Only with this side task.")
@click.option("--tag", metavar="TAG", help="Only with this tag.")
@click.option(
    "-n", "--limit", type=click.IntRange(1, 500), help="At most so many.  [default: 20; of a run all]"
)
@click.option(
    "--format",
    "output_format",
    type=click.Choice(["eval", "json"]),
    default="eval",
    show_default=True,
    help="A log of its own for each, or JSON with the metadata and the sample.",
)
@click.option("--overwrite", is_flag=True, help="Download those again that are here.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, file_okay=False), help="Where to.  [default: data/traj]"
)
def download_traj(
    source: str | None,
    env: str | None,
    main_task: str | None,
    side_task: str | None,
    tag: str | None,
    limit: int | None,
    output_format: Literal["eval", "json"],
    output: Path | None,
    *,
    overwrite: bool,
) -> None:
    """Download samples, each as a log of its own that `inspect view` opens.

    Of a run, named by its id or URL, every one; of a trajectory that one; else what the filters choose.
    Prints the folder.
    """
    from control_tower.client.bundles import Wanted, download_bundles
    from control_tower.errors import OperationError, UsageError

    filters: dict[str, Any] = {"environment": env, "main_task": main_task, "side_task": side_task, "tag": tag}
    if source is None and not any(filters.values()):
        raise UsageError("name a run or a trajectory, or choose with -e, -t, -s or --tag")
    wanted = Wanted(source, filters, limit, output_format, overwrite=overwrite)
    done = download_bundles(wanted, output or TRAJECTORIES)
    click.echo(str(done.folder))
    click.echo(f"{done.written} downloaded, {done.kept} here already", err=True)
    if done.failed:
        first = done.failed[0]
        raise OperationError(f"{len(done.failed)} could not be downloaded; the first: {first}")
