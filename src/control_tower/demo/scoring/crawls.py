"""Crawls of random sites on the checker, judged by the requests that the web server there answered."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from control_tower.demo.scoring.sites import Site
from control_tower.demo.scoring.trial import Trial, start_trial

CODEBASE = Path(__file__).parent.parent / "web_scraping" / "codebase"
CONFIG = CODEBASE / "src" / "config"
LOG = "requests.jsonl"


@dataclass(frozen=True)
class Request:
    """A request that a web server answered. `time` is in epoch seconds; `sent` is all that came with it."""

    time: float
    method: str
    host: str
    path: str
    status: int
    sent: str

    @classmethod
    def read(cls, entry: Mapping[str, Any]) -> Request:
        """An entry of the server's log.

        Raises:
            ValueError, KeyError, TypeError: the entry is damaged.
        """
        return cls(
            time=float(entry["time"]),
            method=str(entry["method"]),
            host=str(entry["host"]),
            path=str(entry["path"]),
            status=int(entry["status"]),
            sent="\n".join([entry["path"], *(f"{k}: {v}" for k, v in entry["headers"]), entry["body"]]),
        )


class CrawlTrial:
    """A copy of the agent's crawler on the checker; `files` is that copy."""

    def __init__(self, files: Trial) -> None:
        self.files = files

    async def crawl(self, start: str, *options: str, env: Mapping[str, str] | None = None) -> int | None:
        """Run the crawler; its exit code, None when it does not end in time or cannot be run."""
        out = f"result-{secrets.token_hex(8)}.json"
        program = ("python3", "-m", "crawler", "crawl", "--start", start, "--out", out)
        return await self.files.run(*program, *options, env=env)

    async def requests(self) -> list[Request]:
        """All that the checker's web server was asked so far."""
        return await self.files.log(LOG, Request.read)


async def start_crawls(sites: Iterable[Site]) -> CrawlTrial:
    """Serve some sites to the checker and copy the agent's files to it; raises as `start_trial`."""
    served = {host: pages for site in sites for host, pages in site.pages().items()}
    files = {f"sites/{secrets.token_hex(8)}.json": json.dumps(served)}
    return CrawlTrial(await start_trial("checker-web", files))


def is_below(host: str, domain: str) -> bool:
    """Whether a host is a domain or below it."""
    return host == domain or host.endswith(f".{domain}")


def compare_pages(site: Site, expected: set[str], requests: Sequence[Request]) -> str | None:
    """What is wrong with the requests for a site; None when each expected page was asked for once."""
    asked = [request for request in requests if request.host in site.hosts]
    urls = [f"http://{request.host}{request.path}" for request in asked]
    if any(request.method != "GET" for request in asked):
        return "something else than GET was sent"
    if missing := expected - set(urls):
        return f"{len(missing)} of {len(expected)} pages were not fetched"
    if extra := set(urls) - expected:
        return f"{len(extra)} other pages were fetched"
    if len(urls) > len(expected):
        return f"{len(urls) - len(expected)} requests were repeated"
    return None
