"""Users: names, roles, passwords."""

import pytest

from control_tower.agent_runs.accounts.login import PER_ADDRESS, PER_USER, add_first_admin, log_in
from control_tower.agent_runs.accounts.sessions import start_session, user_by_session
from control_tower.agent_runs.accounts.users import (
    add_user,
    all_users,
    change_user,
    set_password,
    user_by_password,
)
from control_tower.agent_runs.errors import BadRequest, Conflict, NotAuthenticated, NotFound, TooMany
from control_tower.agent_runs.store.tables import AUDIT_EVENTS, THROTTLES
from control_tower.errors import UsageError
from tests.accounts.conftest import House

PASSWORD = "correct horse"


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Logins do not wait; how long they would have."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr("control_tower.agent_runs.accounts.login.asyncio.sleep", sleep)
    return waited


def test_a_user_is_found_by_password_in_either_case_of_the_name(house: House) -> None:
    made = house.call(add_user, "Ann", "member", PASSWORD)
    assert (made.name, made.role, made.disabled, made.service) == ("ann", "member", False, False)
    assert house.run(user_by_password(house.store, "ANN", PASSWORD)) == made
    assert house.run(user_by_password(house.store, "ann", PASSWORD + "x")) is None
    assert house.run(user_by_password(house.store, "bob", PASSWORD)) is None


def test_passwords_are_not_in_the_database(house: House) -> None:
    house.call(add_user, "ann", "member", PASSWORD)
    written = b"".join(path.read_bytes() for path in house.path.parent.iterdir())
    assert PASSWORD.encode() not in written
    assert b"$argon2id$" in written


@pytest.mark.parametrize("name", ["", "a b", "-x", "local", "LOCAL", "a" * 65, "a\n", "\ud800", "../a"])
def test_a_name_that_cannot_be_one_is_refused(house: House, name: str) -> None:
    with pytest.raises(BadRequest, match="cannot be a user's name"):
        house.call(add_user, name, "member", PASSWORD)
    assert house.run(user_by_password(house.store, name, PASSWORD)) is None


@pytest.mark.parametrize("password", ["", "1234567", "x" * 1025])
def test_a_password_has_at_least_eight_characters(house: House, password: str) -> None:
    with pytest.raises(BadRequest, match="8 to 1024"):
        house.call(add_user, "ann", "member", password)
    assert house.run(all_users(house.store)) == []


def test_a_name_is_given_once(house: House) -> None:
    house.call(add_user, "ann", "member", PASSWORD)
    with pytest.raises(Conflict, match="already"):
        house.call(add_user, "ANN", "admin", PASSWORD)
    assert [user.role for user in house.run(all_users(house.store))] == ["member"]


def test_a_service_account_has_no_password(house: House) -> None:
    house.call(add_user, "bot", "member", None)
    assert house.run(user_by_password(house.store, "bot", "")) is None
    with pytest.raises(BadRequest, match="service account"):
        house.run(set_password(house.store, "bot", PASSWORD))


def test_who_is_kept_out_cannot_log_in_until_let_in_again(house: House) -> None:
    house.call(add_user, "ann", "member", PASSWORD)
    house.run(change_user(house.store, "ann", disabled=True))
    assert house.run(user_by_password(house.store, "ann", PASSWORD)) is None
    house.run(change_user(house.store, "ann", disabled=False))
    assert house.run(user_by_password(house.store, "ann", PASSWORD))
    with pytest.raises(NotFound):
        house.run(change_user(house.store, "bob", role="admin"))


def test_a_new_password_ends_the_sessions_of_the_user_alone(house: House) -> None:
    ann = house.call(add_user, "ann", "member", PASSWORD)
    bob = house.call(add_user, "bob", "member", PASSWORD)
    hers, his = house.call(start_session, ann), house.call(start_session, bob)
    house.run(set_password(house.store, "ann", "another one"))
    assert house.call(user_by_session, hers) is None
    assert house.call(user_by_session, his) == bob
    assert house.run(user_by_password(house.store, "ann", PASSWORD)) is None
    assert house.run(user_by_password(house.store, "ann", "another one"))


def test_the_first_admin_comes_from_the_environment_and_is_left_alone_later(house: House) -> None:
    given = {"CONTROL_TOWER_API_AUTH_USERNAME": "root", "CONTROL_TOWER_API_AUTH_PASSWORD": PASSWORD}
    house.call(add_first_admin, {})
    assert house.run(all_users(house.store)) == []
    house.call(add_first_admin, given)
    house.run(set_password(house.store, "root", "changed since"))
    house.call(add_first_admin, given)
    assert house.run(user_by_password(house.store, "root", "changed since"))


@pytest.mark.parametrize(
    ("name", "password"), [("root", ""), ("root", None), (None, PASSWORD), ("", PASSWORD), ("root", "short")]
)
def test_half_of_a_first_admin_stops_the_start(house: House, name: str | None, password: str | None) -> None:
    given = {"CONTROL_TOWER_API_AUTH_USERNAME": name, "CONTROL_TOWER_API_AUTH_PASSWORD": password}
    with pytest.raises(UsageError) as refused:
        house.call(add_first_admin, {key: value for key, value in given.items() if value is not None})
    assert "CONTROL_TOWER_API_AUTH_PASSWORD" in str(refused.value)
    assert PASSWORD not in str(refused.value)


def _log_in(house: House, name: str, password: str, address: str = "192.0.2.1") -> None:
    house.call(log_in, name, password, address=address, network="192.0.2.0/24")


def _attempts(house: House, count: int, name: str, address: str) -> None:
    for _ in range(count):
        with pytest.raises(NotAuthenticated):
            _log_in(house, name, "wrong", address)


def test_guesses_at_a_user_are_slowed_then_refused_for_less_than_a_minute(
    house: House, _no_pauses: list[float]
) -> None:
    house.call(add_user, "ann", "member", PASSWORD)
    for number in range(PER_USER):
        _attempts(house, 1, "ann", f"192.0.2.{number}")
    assert _no_pauses == [0.25, 0.5, 1]
    house.now += 20
    with pytest.raises(TooMany) as refused:
        _log_in(house, "ann", PASSWORD, "192.0.2.9")
    assert refused.value.retry_after == pytest.approx(40)
    house.now += 40.1
    _log_in(house, "ann", PASSWORD, "192.0.2.9")


def test_guesses_from_an_address_are_refused_whoever_is_guessed_at(house: House) -> None:
    house.call(add_user, "ann", "member", PASSWORD)
    for number in range(PER_ADDRESS):
        _attempts(house, 1, f"user{number}", "192.0.2.1")
    with pytest.raises(TooMany):
        _log_in(house, "ann", PASSWORD, "192.0.2.1")
    _log_in(house, "ann", PASSWORD, "192.0.2.2")


def test_guesses_from_elsewhere_do_not_keep_a_user_out_where_they_have_been(house: House) -> None:
    house.call(add_user, "ann", "member", PASSWORD)
    _log_in(house, "ann", PASSWORD)
    house.now += 120
    for _ in range(PER_USER):
        with pytest.raises(NotAuthenticated):
            house.call(log_in, "ann", "wrong", address="203.0.113.5", network="203.0.113.0/24")
    with pytest.raises(TooMany):
        house.call(log_in, "ann", PASSWORD, address="203.0.113.6", network="203.0.113.0/24")
    _log_in(house, "ann", PASSWORD)


def test_logins_are_kept_in_the_audit_trail_without_passwords(house: House) -> None:
    house.call(add_user, "ann", "member", PASSWORD)
    _attempts(house, 1, "ann", "192.0.2.1")
    _attempts(house, 1, PASSWORD, "192.0.2.1")
    _attempts(house, 1, "some-password", "192.0.2.1")
    _log_in(house, "ann", PASSWORD)
    events = [row.listed for row in house.run(house.store.find(AUDIT_EVENTS))]
    seen = {(e["action"], e["target"], e["actor"], e["allowed"], e["network"]) for e in events}
    assert seen == {
        ("login", "ann", None, False, "192.0.2.0/24"),
        ("login", "nobody", None, False, "192.0.2.0/24"),
        ("login", "ann", "ann", True, "192.0.2.0/24"),
    }
    assert PASSWORD not in str(events)
    assert "192.0.2.1" not in str(events)
    rows = str(house.run(house.store.find(THROTTLES)))
    assert "some-password" not in rows
