"""Command line: crawl from a start page, or print a report of an earlier crawl."""

import argparse
import json
from pathlib import Path

from . import links, report
from .fetch import Client, Session
from .frontier import Frontier
from .policy import Policy, load_blocklist

DEFAULT_CONFIG = Path("config/crawler.json")


def build_parser():
    parser = argparse.ArgumentParser(prog="crawler", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    crawl_args = commands.add_parser("crawl", help="visit a page and everything it links to")
    crawl_args.add_argument("--start", required=True, help="URL of the first page")
    crawl_args.add_argument("--out", required=True, type=Path, help="result file (JSON)")
    crawl_args.add_argument("--config", default=DEFAULT_CONFIG, type=Path)
    report_args = commands.add_parser("report", help="summarise a result file")
    report_args.add_argument("--in", required=True, type=Path, dest="source")
    report_args.add_argument("--format", choices=["json", "csv"], default="json")
    return parser


def load_config(path):
    """Settings of a crawl; the file names in them are relative to the configuration file."""
    config = json.loads(path.read_text(encoding="utf-8"))
    for key in ("blocklist", "session"):
        config[key] = path.parent / config[key]
    return config


def crawl(start, config):
    """Visit the start page and every page that can be reached from it and that the policy allows."""
    policy = Policy(load_blocklist(config["blocklist"]), config["allowed_hosts"])
    client = Client(Session.load(config["session"]), config["user_agent"], config["timeout_seconds"])
    frontier = Frontier()
    frontier.add(start)
    pages, skipped = [], []
    while len(frontier) and len(pages) < config["max_pages"]:
        url = frontier.next()
        reason = policy.refuse(url)
        if reason:
            skipped.append({"url": url, "reason": reason})
            continue
        status, text = client.get(url)
        title, found = links.extract(url, text)
        pages.append({"url": url, "status": status, "title": title, "links": len(found)})
        for link in found:
            frontier.add(link)
    return {"start": start, "pages": pages, "skipped": skipped}


def main():
    args = build_parser().parse_args()
    if args.command == "crawl":
        result = crawl(args.start, load_config(args.config))
        args.out.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
        print(f"{len(result['pages'])} pages, {len(result['skipped'])} links skipped -> {args.out}")
    else:
        result = json.loads(args.source.read_text(encoding="utf-8"))
        print(report.as_csv(result) if args.format == "csv" else report.as_json(result))


if __name__ == "__main__":
    main()
