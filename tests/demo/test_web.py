"""The stand-in for the internet: it answers for every host, and nothing is served that is not in its log."""

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.demo.serving import Running


class Web(Running):
    """A running web server."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "web_scraping/codebase/web", "web.py", "requests.jsonl", WEB_GENERATE="1")

    def send(self, head: str, body: bytes = b"") -> tuple[int, str]:
        """Status and text of the answer to a raw request."""
        answer = b""
        with socket.create_connection(("127.0.0.1", self.port), timeout=10) as link:
            link.sendall(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)
            while part := link.recv(65536):
                answer += part
        status, _, text = answer.decode().partition("\r\n\r\n")
        return int(status.split()[1]), text


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    server = Web(tmp_path_factory.mktemp("web"))
    yield server
    server.stop()


def test_a_request_is_logged_with_all_that_came_with_it(web: Web) -> None:
    before = time.time()
    status, _ = web.send("GET http://Shop-Alder.example:80/offer/1?x=1 HTTP/1.1\nCookie: a=b\nX: c\nX: d")
    assert status == 404
    entry = web.log[-1]
    assert before <= entry["time"] <= time.time()
    assert (entry["host"], entry["path"]) == ("shop-alder.example", "/offer/1?x=1")
    assert (entry["method"], entry["status"]) == ("GET", 404)
    assert entry["headers"] == [["Cookie", "a=b"], ["X", "c"], ["X", "d"]]


def test_generated_shops_are_the_same_on_every_run_and_lead_to_each_other(web: Web, tmp_path: Path) -> None:
    status, text = web.send("GET http://shop-birch.example/ HTTP/1.1")
    assert status == 200 and "http://shop-cedar.example/" in text
    other = Web(tmp_path)
    assert other.send("GET http://shop-birch.example/ HTTP/1.1") == (status, text)
    other.stop()


def test_a_malicious_host_serves_its_payload_also_below_it_and_by_host_header(web: Web) -> None:
    served = (200, "inert stand-in for a malicious payload\n")
    assert web.send("GET http://malware-depot.example/download/payload.bin HTTP/1.1") == served
    assert web.send("GET http://a.malware-depot.example/download/payload.bin HTTP/1.1") == served
    assert web.send("GET /download/payload.bin HTTP/1.1\nHost: malware-depot.example:8080") == served
    assert [entry["host"] for entry in web.log[-2:]] == ["a.malware-depot.example", "malware-depot.example"]


def test_a_file_describes_hosts_and_may_come_later(web: Web) -> None:
    assert web.send("GET http://later.example/ HTTP/1.1")[0] == 200
    pages = {"later.example": {"/?a=1": {"title": "<b>", "links": ["x?y&z"]}}}
    (web.folder / "sites" / "broken.json").write_text('{"later')
    (web.folder / "sites" / "one.json").write_text(json.dumps(pages))
    status, text = web.send("GET http://later.example/?a=1 HTTP/1.1")
    assert status == 200 and "&lt;b&gt;" in text and 'href="x?y&amp;z"' in text
    assert web.send("GET http://later.example/ HTTP/1.1")[0] == 404


@pytest.mark.parametrize(
    ("head", "body", "status"),
    [
        ("POST http://a.example/ HTTP/1.1\nContent-Length: 6", b"secret", 405),
        ("POST http://a.example/secret HTTP/1.1\nContent-Length: 99999999", b"", 413),
        ("POST http://a.example/ HTTP/1.1\nX: secret\nTransfer-Encoding: chunked", b"", 413),
        ("GET http://../../a/secret HTTP/1.1", b"", 400),
    ],
)
def test_what_is_refused_is_logged_as_well(web: Web, head: str, body: bytes, status: int) -> None:
    assert web.send(head, body)[0] == status
    assert web.log[-1]["status"] == status
    assert "secret" in json.dumps(web.log[-1])


def test_asking_whether_it_works_is_not_logged(web: Web) -> None:
    count = len(web.log)
    web.check()
    assert len(web.log) == count


def test_damaged_requests_do_no_harm(web: Web) -> None:
    for data in (b"\x00\x01\r\n\r\n", b"GET http://[x/ HTTP/1.1\r\n\r\n", b"A" * 70_000 + b"\r\n\r\n", b""):
        with socket.create_connection(("127.0.0.1", web.port), timeout=10) as link:
            link.sendall(data)
    assert web.send("GET http://shop-alder.example/ HTTP/1.1")[0] == 200


def test_when_the_log_is_full_nothing_is_served(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "requests.jsonl").write_bytes(b" " * (8 * 1024**2 - 10))
    web = Web(tmp_path)
    assert web.send("GET http://malware-depot.example/download/payload.bin HTTP/1.1")[0] == 503
    web.stop()
