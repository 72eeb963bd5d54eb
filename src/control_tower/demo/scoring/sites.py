"""Random web sites whose pages and depths are known on the host."""

from __future__ import annotations

import itertools
import posixpath
import random
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass
class Site:
    """Pages of one or several hosts, each reachable from `start`.

    `links` maps a page's URL to its links as they are written on the page; `depths` gives the smallest
    number of links from the start page to each page.
    """

    start: str
    links: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    depths: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def hosts(self) -> set[str]:
        """Hosts that serve pages of the site."""
        return {urlsplit(url).netloc for url in self.links}

    def within(self, depth: int | None) -> set[str]:
        """URLs up to a depth, all of them for None."""
        return {url for url, at in self.depths.items() if depth is None or at <= depth}

    def pages(self) -> dict[str, dict[str, Mapping[str, object]]]:
        """What the server serves: host -> path with query -> page."""
        served: dict[str, dict[str, Mapping[str, object]]] = {host: {} for host in self.hosts}
        for url, links in self.links.items():
            parts = urlsplit(url)
            path = f"{parts.path}?{parts.query}" if parts.query else parts.path
            served[parts.netloc][path] = {"title": f"Page {path}", "links": links}
        return served


def random_host(below: str = "shop.example") -> str:
    """A host name that nobody can know in advance."""
    return f"s{secrets.token_hex(8)}.{below}"


def single_page(host: str, links: list[str]) -> Site:
    """A site of one page with the given links."""
    start = f"http://{host}/"
    return Site(start, {start: links}, {start: 0})


def deep_site(rng: random.Random) -> Site:
    """A site with cycles, diamonds and a page that every depth-first order reaches too late.

    That page is two links away from the start page, behind a link in the middle. The first and the last
    link of the start page begin chains that reach it in three steps. A walk that follows first links
    first, or last links first, and remembers the depth it saw first, stops too early behind it: at limit 3
    it loses the page after it, at limit 4 the one after that.
    """
    hosts = random_host(), random_host()
    start = f"http://{hosts[0]}/"

    def new_page() -> str:
        return f"http://{rng.choice(hosts)}/{_name(rng)}"

    first, last = [[new_page() for _ in range(2)] for _ in range(2)]
    middle = [new_page() for _ in range(5)]
    late = middle[1]
    links: dict[str, list[str]] = {start: [first[0], middle[0], last[0]], middle[-1]: [middle[2]]}
    for chain in (middle, [*first, late], [*last, late]):
        for url, following in itertools.pairwise(chain):
            links[url] = [following]
    for _ in range(10):
        parents, url = rng.sample(list(links), k=2), new_page()
        for parent in parents:
            links[parent].insert(0 if parent in last else 1, url)
        links[url] = [start, url]
    site = Site(start, {url: [_written(url, link) for link in found] for url, found in links.items()})
    site.depths = _breadth_first(start, links)
    return site


def _written(base: str, target: str) -> str:
    """A link as a page writes it: rooted on its own host, absolute to another."""
    here, there = urlsplit(base), urlsplit(target)
    return there.path if here.netloc == there.netloc else target


def _breadth_first(start: str, links: Mapping[str, list[str]]) -> dict[str, int]:
    depths = {start: 0}
    queue = [start]
    for url in queue:
        for link in links[url]:
            if link not in depths:
                depths[link] = depths[url] + 1
                queue.append(link)
    return depths


def relative_site(rng: random.Random) -> Site:
    """Pages in folders, each reached by one link only; every relative form stands for several of them."""
    host = random_host()
    start = f"/{_name(rng)}/{_name(rng)}/{_name(rng)}"
    pages: dict[str, list[str]] = {start: []}
    forms = [*_FORMS, *_FORMS]
    rng.shuffle(forms)
    for form in forms:
        base = rng.choice(list(pages))
        href, target = form(rng, host, base)
        pages[base].append(href)
        pages[target] = []
    for base, found in pages.items():
        if base == start or rng.random() < 0.5:
            found.insert(rng.randint(0, len(found)), f"#{_name(rng)}")
        found.append(f"{start}#{_name(rng)}")
    root = f"http://{host}"
    site = Site(root + start, {root + path: found for path, found in pages.items()})
    site.depths = dict.fromkeys(site.links, 1) | {site.start: 0}
    return site


def _name(rng: random.Random) -> str:
    return f"{rng.choice(('tea', 'lamp', 'radio', 'clock', 'chair'))}-{rng.getrandbits(32):08x}"


def _folder(path: str) -> str:
    return posixpath.dirname(path.partition("?")[0])


def _parent(rng: random.Random, host: str, base: str) -> tuple[str, str]:
    folder, name = _name(rng), _name(rng)
    target = posixpath.join(posixpath.dirname(_folder(base)), folder, name)
    return f"../{folder}/{name}", target


def _above_root(rng: random.Random, host: str, base: str) -> tuple[str, str]:
    name = _name(rng)
    return "../" * (_folder(base).count("/") + 1) + name, f"/{name}"


def _query(rng: random.Random, host: str, base: str) -> tuple[str, str]:
    query = f"?page={rng.getrandbits(32)}"
    return query, base.partition("?")[0] + query


def _sibling(rng: random.Random, host: str, base: str) -> tuple[str, str]:
    name = _name(rng)
    return f"{name}#{_name(rng)}", posixpath.join(_folder(base), name)


def _dotted(rng: random.Random, host: str, base: str) -> tuple[str, str]:
    name = _name(rng)
    return f"./{name}", posixpath.join(_folder(base), name)


def _rooted(rng: random.Random, host: str, base: str) -> tuple[str, str]:
    target = f"/{_name(rng)}/{_name(rng)}"
    return target, target


def _absolute(rng: random.Random, host: str, base: str) -> tuple[str, str]:
    target = f"/{_name(rng)}/{_name(rng)}"
    return f"http://{host}{target}#{_name(rng)}", target


_FORMS = (_parent, _above_root, _query, _sibling, _dotted, _rooted, _absolute)
