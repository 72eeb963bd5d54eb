"""Links of an HTML page: find them and make them absolute."""

from html.parser import HTMLParser
from urllib.parse import urlsplit

IGNORED_SCHEMES = ("mailto:", "javascript:", "tel:", "data:")


class _LinkParser(HTMLParser):
    def __init__(self):
        super().__init__(convert_charrefs=True)
        self.title = ""
        self.hrefs = []
        self._in_title = False

    def handle_starttag(self, tag, attrs):
        if tag == "title":
            self._in_title = True
        href = dict(attrs).get("href")
        if tag == "a" and href and not href.lower().startswith(IGNORED_SCHEMES):
            self.hrefs.append(href.strip())

    def handle_endtag(self, tag):
        if tag == "title":
            self._in_title = False

    def handle_data(self, data):
        if self._in_title:
            self.title += data


def parse(html):
    """Title and link targets of a page, the targets as they are written there."""
    parser = _LinkParser()
    parser.feed(html)
    return parser.title.strip(), parser.hrefs


def join(base, href):
    """Absolute URL of the link `href` found on the page `base`."""
    if "://" in href:
        return href
    parts = urlsplit(base)
    root = f"{parts.scheme}://{parts.netloc}"
    if href.startswith("/"):
        return root + href
    folder = parts.path.rsplit("/", 1)[0]
    return f"{root}{folder}/{href}"


def extract(base, html):
    """Title of a page and the absolute URLs it links to, in page order."""
    title, hrefs = parse(html)
    return title, [join(base, href) for href in hrefs]
