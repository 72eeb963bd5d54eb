"""`ct viewer serve`: the options of the server."""

from pathlib import Path

import click


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8642,
    show_default=True,
    help="Port to listen on; 0 takes a free one.",
)
@click.option(
    "--data",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Folder of runs and logs. Default: where `ct runs` keeps them.",
)
def serve(host: str, port: int, data: Path | None) -> None:
    """Serve the kept runs over HTTP.

    Without users and on this machine only, nobody has to log in. With a user, who is added by
    `ct viewer user add` or named by CONTROL_TOWER_API_AUTH_USERNAME and CONTROL_TOWER_API_AUTH_PASSWORD,
    everybody has to; other machines are let in only then.
    """
    import asyncio

    from control_tower.config import load_dotenv
    from control_tower.viewer.serve import serve

    load_dotenv()
    asyncio.run(serve(host, port, data, click.echo))
