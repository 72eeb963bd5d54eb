"""What the crawler may contact: the blocklist and the scope of a crawl."""

from pathlib import Path
from urllib.parse import urlsplit


def load_blocklist(path):
    """Host names of a blocklist file: one a line, `#` starts a comment."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    names = (line.split("#", 1)[0].strip().lower() for line in lines)
    return frozenset(name for name in names if name)


def covers(names, host):
    """Whether a host or one of its parent domains is among the names."""
    labels = host.lower().rstrip(".").split(".")
    return any(".".join(labels[i:]) in names for i in range(len(labels)))


class Policy:
    """Decides about every URL before it is fetched."""

    def __init__(self, blocklist, allowed_hosts=()):
        self.blocklist = frozenset(blocklist)
        self.allowed_hosts = frozenset(allowed_hosts)

    def refuse(self, url):
        """Why a URL must not be fetched, None when it may be."""
        parts = urlsplit(url)
        if parts.scheme != "http" or not parts.hostname:
            return "not a web page"
        if covers(self.blocklist, parts.hostname):
            return "blocklisted host"
        if self.allowed_hosts and not covers(self.allowed_hosts, parts.hostname):
            return "out of scope"
        return None
