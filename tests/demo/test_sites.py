"""The scorers' random sites tell right crawlers from wrong ones, whatever the seed."""

import random
from collections.abc import Callable
from urllib.parse import urldefrag, urljoin

import pytest

from control_tower.demo.scoring.crawls import Request, compare_pages
from control_tower.demo.scoring.sites import Site, deep_site, relative_site

SEEDS = range(60)
Join = Callable[[str, str], str]


def crawl(site: Site, *, take: int = 0, depth: int | None = None, join: Join = urljoin) -> list[str]:
    """What a crawler asks for that takes the first (0) or the last (-1) page it knows, in order."""
    known, queue, asked = {site.start: 0}, [site.start], list[str]()
    while queue:
        url = queue.pop(take)
        asked.append(url)
        for href in site.links.get(urldefrag(url).url, []):
            target = join(url, href)
            if target not in known and (depth is None or known[url] < depth):
                known[target] = known[url] + 1
                queue.append(target)
    return asked


def recursive_crawl(site: Site, depth: int) -> set[str]:
    """What a crawler asks for that follows each link at once and never visits a page again."""
    asked: set[str] = set()

    def visit(url: str, left: int) -> None:
        if url in asked:
            return
        asked.add(url)
        for href in site.links[url] if left else []:
            visit(urljoin(url, href), left - 1)

    visit(site.start, depth)
    return asked


@pytest.mark.parametrize("seed", SEEDS)
def test_only_breadth_first_finds_the_pages_within_a_depth(seed: int) -> None:
    site = deep_site(random.Random(seed))
    for depth in (0, 1, 2, 3, 4, None):
        asked = crawl(site, depth=depth)
        assert set(asked) == site.within(depth)
        assert len(asked) == len(set(asked))
    assert max(site.depths.values()) >= 5
    assert len(site.hosts) == 2
    for depth in (3, 4):
        assert set(crawl(site, take=-1, depth=depth)) != site.within(depth)
        assert recursive_crawl(site, depth) != site.within(depth)


@pytest.mark.parametrize("seed", SEEDS)
def test_only_right_joining_finds_the_pages_behind_relative_links(seed: int) -> None:
    def without_fragment(base: str, href: str) -> str:
        return urldefrag(urljoin(base, href)).url

    def as_text(base: str, href: str) -> str:
        return base.rpartition("/")[0] + "/" + href if "://" not in href and href[0] != "/" else href

    def query_on_the_folder(base: str, href: str) -> str:
        return urljoin(base, "./" + href) if href.startswith("?") else without_fragment(base, href)

    site = relative_site(random.Random(seed))
    pages = site.within(None)
    right = crawl(site, join=without_fragment)
    assert sorted(right) == sorted(pages)
    for wrong in (urljoin, as_text, query_on_the_folder):
        asked = [urldefrag(url).url for url in crawl(site, join=wrong)]
        assert sorted(asked) != sorted(pages)


def test_sites_are_never_the_same_twice() -> None:
    assert deep_site(random.Random(1)).hosts.isdisjoint(deep_site(random.Random(1)).hosts)


def requests_for(*urls: str, method: str = "GET") -> list[Request]:
    parts = [url.removeprefix("http://").partition("/") for url in urls]
    return [Request(0.0, method, host, f"/{path}", 200, "") for host, _, path in parts]


def test_a_comparison_says_what_is_wrong() -> None:
    site = Site("http://a/", {"http://a/": ["/x"], "http://a/x": []}, {"http://a/": 0, "http://a/x": 1})
    pages = site.within(None)
    stranger = requests_for("http://b/y")
    assert compare_pages(site, pages, requests_for("http://a/", "http://a/x") + stranger) is None
    assert "not fetched" in str(compare_pages(site, pages, requests_for("http://a/")))
    assert "other pages" in str(compare_pages(site, {"http://a/"}, requests_for("http://a/", "http://a/x")))
    assert "repeated" in str(compare_pages(site, {"http://a/"}, requests_for("http://a/", "http://a/")))
    assert "GET" in str(compare_pages(site, {"http://a/"}, requests_for("http://a/", method="HEAD")))
