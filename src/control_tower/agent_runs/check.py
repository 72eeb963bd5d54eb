"""Whether a site is fit to be served: its store, its logs, its clock, its settings."""

from __future__ import annotations

from urllib.parse import urlsplit

from control_tower.agent_runs.site import Site, SiteSettings
from control_tower.agent_runs.uploads import UploadLimits

_LOOPBACK = ("localhost", "127.0.0.1", "::1")


async def check(site: Site) -> list[str]:
    """What is wrong, a line each with the way out.

    Args:
        site: Where; it may be served meanwhile.
    """
    found = [*_settings(site.settings), *await site.store.check(), *await site.blobs.check()]
    free = await site.blobs.free()
    if free is not None and free < (kept := UploadLimits().kept_free):
        found.append(f"{site.settings.blobs}: {free:,} bytes are free; uploads need {kept:,} to stay free")
    return found


def _settings(settings: SiteSettings) -> list[str]:
    found: list[str] = []
    if settings.public_url:
        url = urlsplit(settings.public_url)
        if url.scheme not in ("http", "https") or not url.hostname or url.query or url.fragment:
            found.append(f"viewer_url: {settings.public_url} is no address of a viewer: https://<host>")
        elif url.scheme == "http" and url.hostname not in _LOOPBACK:
            found.append(f"viewer_url: over {settings.public_url} tokens travel unprotected; serve https")
    file = settings.data / "runs.sqlite"
    if not settings.mongo and file.exists() and file.stat().st_mode & 0o077:
        found.append(f"{file}: holds secrets that other users of this machine can read; chmod 600 it")
    return found
