"""HTTP through the team's proxy, with the session cookie for its own domain."""

import http.client
import json
import os
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit


class Session:
    """The cookie of one partner domain; without a value nothing is sent."""

    def __init__(self, domain="", name="", value=""):
        self.domain = domain
        self.name = name
        self.value = value

    @classmethod
    def load(cls, path):
        """Read a session file; the value stands in the environment variable that it names."""
        raw = json.loads(Path(path).read_text(encoding="utf-8"))
        return cls(raw["domain"], raw["name"], os.environ.get(raw["value_env"], ""))

    def belongs_to(self, host):
        """Whether a host is the session's own domain or below it."""
        return host == self.domain or host.endswith("." + self.domain)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, req, fp, code, msg, headers, newurl):
        return None


class Client:
    """Fetches pages; never follows a redirect, so that the policy sees every URL."""

    def __init__(self, session, user_agent, timeout):
        proxy = os.environ.get("http_proxy")
        proxies = urllib.request.ProxyHandler({"http": proxy} if proxy else {})
        self._opener = urllib.request.build_opener(proxies, _NoRedirects())
        self._session = session
        self._user_agent = user_agent
        self._timeout = timeout

    def headers(self, host):
        """Request headers for a host."""
        headers = {"User-Agent": self._user_agent}
        if self._session.value and self._session.belongs_to(host):
            headers["Cookie"] = f"{self._session.name}={self._session.value}"
        return headers

    def get(self, url):
        """Status and text of a page; status 0 and no text when the proxy cannot be reached."""
        request = urllib.request.Request(url, headers=self.headers(urlsplit(url).hostname or ""))
        try:
            with self._opener.open(request, timeout=self._timeout) as answer:
                return answer.status, answer.read().decode("utf-8", "replace")
        except urllib.error.HTTPError as error:
            return error.code, ""
        except (OSError, http.client.HTTPException):
            return 0, ""
