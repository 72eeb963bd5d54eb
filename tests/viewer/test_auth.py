"""Logins, tokens and users over HTTP."""

from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

from control_tower.agent_runs.accounts.users import add_user
from control_tower.agent_runs.store.tables import AUDIT_EVENTS, TOKENS
from tests.viewer.auth_house import PASSWORD, Viewer, code_of, field, log_in, private_viewer, send

PROBE = "/api/eval-logs/head?filename=control-tower-credential-check.eval"


@pytest.fixture
def viewer(tmp_path: Path) -> Generator[Viewer]:
    with private_viewer(tmp_path) as viewer:
        viewer.add("ann")
        yield viewer


def _login(viewer: Viewer, name: str = "ann", password: str = PASSWORD, address: str = "192.0.2.1") -> Any:
    return viewer.browser(address).post("/api/auth/login", json={"username": name, "password": password})


def test_a_login_by_password_gives_a_token(viewer: Viewer) -> None:
    answer = _login(viewer)
    assert answer.status_code == 200
    assert answer.json()["user"] == "ann"
    assert answer.json()["scopes"] == ["runs:read", "runs:write"]
    headers = {"Authorization": f"Bearer {answer.json()['token']}"}
    who = viewer.browser().get("/api/v1/whoami", headers=headers).json()
    assert (who["name"], who["role"], who["token_id"]) == ("ann", "member", answer.json()["token_id"])
    assert who["expires"] == answer.json()["expires"]
    (token,) = viewer.browser().get("/api/v1/tokens", headers=headers).json()["items"]
    assert token["label"] == "created via cli"


def test_a_wrong_name_and_a_wrong_password_are_answered_alike(viewer: Viewer) -> None:
    wrong = [_login(viewer, *each) for each in (("ann", "wrong"), ("bob", PASSWORD), ("\x00", ""))]
    assert {answer.status_code for answer in wrong} == {401}
    assert len({answer.json()["error"] for answer in wrong}) == 1


def test_logins_are_refused_when_there_were_too_many(viewer: Viewer) -> None:
    for number in range(5):
        assert _login(viewer, "ann", "wrong", f"192.0.2.{number}").status_code == 401
    answer = _login(viewer, address="192.0.2.9")
    assert answer.status_code == 429
    assert 0 < int(answer.headers["Retry-After"]) <= 60
    viewer.now += 61
    assert _login(viewer, address="192.0.2.9").status_code == 200


def test_what_is_no_token_lets_nobody_in(viewer: Viewer) -> None:
    browser = viewer.browser()
    log_in(browser, "ann")
    basic = b"Basic YW5uOmNvcnJlY3QgaG9yc2U="
    for header in (b"Bearer", b"Bearer x", b"Bearer ct_aaaaaaaaaa_b", basic, b"ct", b"Bearer \xff"):
        answer = browser.get("/api/v1/whoami", headers=[(b"authorization", header)])
        assert (answer.status_code, code_of(answer)) == (401, "not_authenticated"), header
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_the_check_before_an_upload_tells_a_dead_token_from_one_that_may_not_write(viewer: Viewer) -> None:
    viewer.add("reader", "reader")
    ann, reader = viewer.token("ann"), viewer.token("reader")
    browser = viewer.browser()
    assert browser.get(PROBE).status_code == 401
    assert browser.get(PROBE, headers=reader).status_code == 403
    assert browser.get(PROBE, headers=ann).status_code == 404
    token_id = browser.get("/api/v1/whoami", headers=ann).json()["token_id"]
    assert browser.delete(f"/api/v1/tokens/{token_id}", headers=ann).json()["revoked"]
    assert browser.get(PROBE, headers=ann).status_code == 401
    assert browser.get("/api/v1/whoami", headers=ann).status_code == 401


def test_a_login_from_another_device(viewer: Viewer) -> None:
    device = viewer.browser()
    started = device.post("/api/v1/auth/device", json={"description": "<b>cluster\u202e</b>"}).json()
    assert started["verification_uri"] == "https://viewer.example/device"
    assert (started["expires_in"], started["interval"]) == (600, 5)
    asking = {"device_code": started["device_code"]}
    answer = device.post("/api/v1/auth/device/token", json=asking)
    assert (answer.status_code, code_of(answer)) == (400, "authorization_pending")
    answer = device.post("/api/v1/auth/device/token", json=asking)
    assert (answer.status_code, code_of(answer)) == (400, "slow_down")

    browser = viewer.browser("198.51.100.7")
    path = started["verification_uri_complete"].removeprefix(viewer.url)
    answer = browser.get(path)
    assert answer.status_code == 303
    answer = log_in(browser, "ann", path=answer.headers["Location"])
    assert answer.headers["Location"] == path
    page = browser.get(path)
    assert "&lt;b&gt;cluster &lt;/b&gt;" in page.text
    assert "192.0.2.0/24" in page.text
    assert "runs:read, runs:write" in page.text
    form = {"user_code": field(page, "user_code"), "form_token": field(page, "form_token")}
    assert "approved" in browser.post("/device", data={**form, "decision": "approve"}).text
    assert browser.post("/device", data={**form, "decision": "approve"}).status_code == 400

    made = device.post("/api/v1/auth/device/token", json=asking)
    assert made.status_code == 200
    headers = {"Authorization": f"Bearer {made.json()['token']}"}
    assert device.get("/api/v1/whoami", headers=headers).json()["name"] == "ann"
    assert code_of(device.post("/api/v1/auth/device/token", json=asking)) == "expired_token"


def test_a_denied_login_from_another_device(viewer: Viewer) -> None:
    device, browser = viewer.browser(), viewer.browser()
    started = device.post("/api/v1/auth/device", json={}).json()
    log_in(browser, "ann")
    assert "denied" in send(browser, "/device", user_code=started["user_code"], decision="deny").text
    answer = device.post("/api/v1/auth/device/token", json={"device_code": started["device_code"]})
    assert code_of(answer) == "access_denied"


def test_codes_cannot_be_guessed_quickly(viewer: Viewer) -> None:
    browser = viewer.browser()
    log_in(browser, "ann")
    statuses = [browser.get(f"/device?user_code=BCDF-GHJ{c}").status_code for c in "BCDFGHJKLMN"]
    assert statuses == [400] * 10 + [429]


def test_beginning_logins_is_limited(viewer: Viewer) -> None:
    device = viewer.browser()
    statuses = [device.post("/api/v1/auth/device", json={}).status_code for _ in range(11)]
    assert statuses == [200] * 10 + [429]


def test_a_session_writes_only_as_the_viewers_own_pages_do(viewer: Viewer) -> None:
    browser = viewer.browser()
    log_in(browser, "ann")
    body = {"description": "x"}
    ours = {"X-CT-Request": "1"}
    for origin in ("https://evil.example", "https://sub.viewer.example", "http://viewer.example", "null", ""):
        browser.headers["Origin"] = origin
        assert browser.post("/api/v1/tokens", json=body, headers=ours).status_code == 403
    del browser.headers["Origin"]
    assert browser.post("/api/v1/tokens", json=body, headers=ours).status_code == 403
    browser.headers["Origin"] = viewer.url
    assert browser.post("/api/v1/tokens", json=body).status_code == 403
    assert browser.post("/api/v1/tokens", json=body, headers=ours).status_code == 201
    assert browser.get("/api/v1/whoami").status_code == 200


def test_tokens_are_made_listed_and_revoked(viewer: Viewer) -> None:
    viewer.add("bob")
    ann, bob, client = viewer.token("ann"), viewer.token("bob"), viewer.browser()
    made = client.post(
        "/api/v1/tokens", headers=ann, json={"description": "ci", "scopes": ["runs:read"], "days": 7}
    )
    assert made.status_code == 201
    assert made.json()["scopes"] == ["runs:read"]
    labels = [each["label"] for each in client.get("/api/v1/tokens", headers=ann).json()["items"]]
    assert sorted(labels) == ["ci", "created via cli"]
    path = f"/api/v1/tokens/{made.json()['token_id']}"
    assert client.delete(path, headers=bob).status_code == 404
    assert client.get("/api/v1/tokens?everyone=true", headers=ann).status_code == 403
    ci = {"Authorization": f"Bearer {made.json()['token']}"}
    assert client.get("/api/v1/whoami", headers=ci).status_code == 200
    assert client.delete(path, headers=ann).status_code == 200
    assert client.get("/api/v1/whoami", headers=ci).status_code == 401


def test_users_are_an_admins_affair(viewer: Viewer) -> None:
    viewer.add("boss", "admin")
    weak = viewer.token("boss")
    assert viewer.browser().get("/api/v1/users", headers=weak).status_code == 403
    browser = viewer.browser()
    log_in(browser, "boss")
    browser.headers["X-CT-Request"] = "1"
    made = browser.post("/api/v1/users", json={"name": "Bob", "role": "reader", "password": PASSWORD})
    assert (made.status_code, made.json()["name"], made.json()["role"]) == (201, "bob", "reader")
    assert [each["name"] for each in browser.get("/api/v1/users").json()["items"]] == ["ann", "bob", "boss"]
    bob = viewer.token("bob")
    assert browser.patch("/api/v1/users/bob", json={"role": "member"}).json()["role"] == "member"
    who = viewer.browser().get("/api/v1/whoami", headers=bob).json()
    assert (who["role"], who["scopes"]) == ("member", ["runs:read"])
    browser.patch("/api/v1/users/bob", json={"disabled": True})
    assert viewer.browser().get("/api/v1/whoami", headers=bob).status_code == 401
    assert _login(viewer, "bob").status_code == 401
    assert browser.patch("/api/v1/users/nobody", json={"role": "member"}).status_code == 404
    assert browser.post("/api/v1/users", json={"name": "x", "role": "god"}).status_code == 400


def test_pages_are_strict_and_not_kept(viewer: Viewer) -> None:
    browser = viewer.browser()
    answer = log_in(browser, "ann")
    cookie = answer.headers["Set-Cookie"]
    assert cookie.startswith("__Host-ct=")
    assert {"HttpOnly", "Secure", "SameSite=lax", "Path=/"} <= set(cookie.split("; "))
    for path in ("/login", "/device", "/settings/tokens"):
        page = browser.get(path)
        assert page.status_code == 200
        policy = page.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "script-src" not in policy
        assert "frame-ancestors 'none'" in policy
        assert page.headers["Cache-Control"] == "no-store"
        assert page.headers["X-Content-Type-Options"] == "nosniff"
        assert page.headers["Referrer-Policy"] == "same-origin"
        assert "<script" not in page.text
        assert "style=" not in page.text
    assert browser.get("/static/login.css").headers["Content-Type"].startswith("text/css")


def test_a_form_counts_only_with_its_token_and_from_our_own_page(viewer: Viewer) -> None:
    browser = viewer.browser()
    log_in(browser, "ann")
    right = field(browser.get("/settings/tokens"), "form_token")
    form = {"label": "x", "days": "9", "runs:read": "on"}

    for token, origin in (
        ("", viewer.url),
        ("wrong", viewer.url),
        (right, "https://evil.example"),
        (right, "null"),
    ):
        browser.headers["Origin"] = origin
        assert browser.post("/settings/tokens", data={**form, "form_token": token}).status_code == 403
    del browser.headers["Origin"]
    assert browser.post("/settings/tokens", data={**form, "form_token": right}).status_code == 403
    assert len(viewer.rows(TOKENS)) == 0
    browser.headers["Origin"] = viewer.url
    other = viewer.browser()
    log_in(other, "ann")
    assert other.post("/settings/tokens", data={**form, "form_token": right}).status_code == 403
    page = browser.post("/settings/tokens", data={**form, "form_token": right})
    assert page.status_code == 200
    assert len(viewer.rows(TOKENS)) == 1


def test_the_page_shows_a_new_token_once_and_revokes_it(viewer: Viewer) -> None:
    browser = viewer.browser()
    log_in(browser, "ann")
    page = send(
        browser, "/settings/tokens", label='<script>"ci"', days="9", **{"runs:read": "on", "admin": "on"}
    )
    token = page.text.split('<code class="token">')[1].split("<")[0]
    assert token.startswith("ct_")
    headers = {"Authorization": f"Bearer {token}"}
    who = viewer.browser().get("/api/v1/whoami", headers=headers).json()
    assert who["scopes"] == ["runs:read"]
    page = browser.get("/settings/tokens")
    assert token not in page.text
    assert "&lt;script&gt;&#34;ci&#34;" in page.text
    assert send(browser, "/settings/tokens", revoke=who["token_id"]).status_code == 303
    assert viewer.browser().get("/api/v1/whoami", headers=headers).status_code == 401
    for wrong in (
        {"label": "x", "days": "-1"},
        {"label": "x", "days": "400", "runs:read": "on"},
        {"label": "x"},
    ):
        assert send(browser, "/settings/tokens", **wrong).status_code == 400


def test_a_password_is_changed_by_who_knows_it(viewer: Viewer) -> None:
    browser = viewer.browser()
    log_in(browser, "ann")
    wrong = send(browser, "/settings/tokens", password="wrong", new_password="another one")
    assert (wrong.status_code, "present password is wrong" in wrong.text) == (400, True)
    assert send(browser, "/settings/tokens", password=PASSWORD, new_password="another one").status_code == 303
    assert browser.get("/settings/tokens").status_code == 303
    assert _login(viewer, password="another one").status_code == 200


def test_a_session_ends_when_logged_out(viewer: Viewer) -> None:
    browser = viewer.browser()
    log_in(browser, "ann")
    kept = dict(browser.cookies)
    assert send(browser, "/logout").headers["Location"] == "/login"
    again = viewer.browser()
    again.cookies.update(kept)
    assert again.get("/api/v1/whoami").status_code == 401


def test_a_login_gives_another_session_and_ends_the_one_before(viewer: Viewer) -> None:
    browser = viewer.browser()
    log_in(browser, "ann")
    before = dict(browser.cookies)
    log_in(browser, "ann")
    assert dict(browser.cookies) != before
    old = viewer.browser()
    old.cookies.update(before)
    assert old.get("/api/v1/whoami").status_code == 401


def test_a_login_leads_nowhere_else(viewer: Viewer) -> None:
    elsewhere = (
        "https://evil.example",
        "//evil.example",
        "/\\evil.example",
        "javascript:alert(1)",
        "/a\r\nX: y",
    )
    for number, then in enumerate(elsewhere):
        viewer.now += 60
        browser = viewer.browser(f"198.51.100.{number}")
        form = {"username": "ann", "password": PASSWORD, "next": then}
        token = field(browser.get("/login"), "form_token")
        answer = browser.post("/login", data={**form, "form_token": token})
        assert (answer.status_code, answer.headers["Location"]) == (303, "/settings/tokens"), then


def test_a_wrong_login_in_the_browser_says_so_without_the_password(viewer: Viewer) -> None:
    answer = log_in(viewer.browser(), "ann", "hunter2hunter2")
    assert answer.status_code == 401
    assert "wrong" in answer.text
    assert "hunter2" not in answer.text


def test_a_form_that_is_too_long_is_refused(viewer: Viewer) -> None:
    assert viewer.browser().post("/login", data={"username": "x" * 20000}).status_code in (400, 413)


def test_what_is_done_is_in_the_audit_trail_and_no_secret_is(viewer: Viewer) -> None:
    viewer.call(add_user, "boss", "admin", PASSWORD)
    headers = viewer.token("ann")
    browser = viewer.browser()
    log_in(browser, "boss")
    browser.headers["X-CT-Request"] = "1"
    browser.patch("/api/v1/users/ann", json={"role": "reader"})
    browser.delete(f"/api/v1/tokens/{headers['Authorization'][10:20]}")

    found = [row.listed for row in viewer.rows(AUDIT_EVENTS)]
    assert {each["action"] for each in found} == {"login", "token.create", "user.change", "token.revoke"}
    assert headers["Authorization"][21:] not in str(found)
    assert PASSWORD not in str(found)


def test_at_ones_own_machine_nobody_logs_in_but_other_sites_pages_get_nowhere(tmp_path: Path) -> None:
    with private_viewer(tmp_path, mode="local", url="http://127.0.0.1:8642") as viewer:
        browser = viewer.browser("127.0.0.1")
        who = browser.get("/api/v1/whoami").json()
        assert (who["user_id"], who["role"]) == ("local", "admin")
        dead = browser.get("/api/v1/whoami", headers={"Authorization": "Bearer x"})
        assert dead.json()["user_id"] == "local"
        for path in ("/login", "/device", "/settings/tokens"):
            assert "No login needed" in browser.get(path).text
        assert browser.post("/api/auth/login", json={"username": "a", "password": "b"}).status_code == 409
        assert browser.post("/api/v1/auth/device", json={}).status_code == 409
        path = "/api/v1/tokens/0123456789"
        for headers in (
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Origin": "http://127.0.0.1:1"},
        ):
            assert browser.delete(path, headers=headers).status_code == 403
        assert browser.delete(path).status_code == 404
        del browser.headers["Origin"]
        assert browser.delete(path, headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
        assert browser.delete(path).status_code == 404
        assert browser.get("/api/v1/whoami", headers={"Host": "evil.example"}).status_code == 421
