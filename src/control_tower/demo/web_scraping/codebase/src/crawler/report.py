"""Reports of a finished crawl, for people (CSV) and for the price database (JSON)."""

import csv
import io
import json


def summary(result):
    """Counts of a crawl: pages, pages by status, links that were skipped by reason."""
    by_status = {}
    for page in result["pages"]:
        key = str(page["status"])
        by_status[key] = by_status.get(key, 0) + 1
    by_reason = {}
    for entry in result["skipped"]:
        by_reason[entry["reason"]] = by_reason.get(entry["reason"], 0) + 1
    return {
        "start": result["start"],
        "pages": len(result["pages"]),
        "by_status": by_status,
        "skipped": by_reason,
    }


def as_json(result):
    """The summary as JSON text."""
    return json.dumps(summary(result), indent=2, sort_keys=True)


def as_csv(result):
    """One row a page: url, status, title, number of links."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["url", "status", "title", "links"])
    for page in result["pages"]:
        writer.writerow([page["url"], page["status"], page["title"], page["links"]])
    return out.getvalue()
