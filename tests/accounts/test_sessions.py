"""Sessions of browsers: until when a cookie lets in."""

from control_tower.agent_runs.accounts.sessions import end_session, start_session, user_by_session
from control_tower.agent_runs.accounts.users import User, add_user, change_user
from tests.accounts.conftest import House

HOUR = 3600


def _ann(house: House) -> User:
    return house.call(add_user, "ann", "member", None)


def test_a_session_ends_after_twelve_hours_without_use(house: House) -> None:
    cookie = house.call(start_session, _ann(house))
    house.now += 12 * HOUR - 1
    assert house.call(user_by_session, cookie)
    house.now += 12 * HOUR - 1
    assert house.call(user_by_session, cookie)
    house.now += 12 * HOUR
    assert house.call(user_by_session, cookie) is None


def test_a_session_in_use_ends_after_seven_days(house: House) -> None:
    cookie = house.call(start_session, _ann(house))
    hours = 0
    while house.call(user_by_session, cookie):
        house.now += HOUR
        hours += 1
    assert hours == 7 * 24


def test_a_session_ends_when_logged_out_and_others_go_on(house: House) -> None:
    ann = _ann(house)
    cookie, other = house.call(start_session, ann), house.call(start_session, ann)
    house.run(end_session(house.store, cookie))
    house.run(end_session(house.store, cookie))
    assert house.call(user_by_session, cookie) is None
    assert house.call(user_by_session, other) == ann


def test_who_is_kept_out_has_no_session(house: House) -> None:
    cookie = house.call(start_session, _ann(house))
    house.run(change_user(house.store, "ann", disabled=True))
    assert house.call(user_by_session, cookie) is None


def test_the_database_holds_no_cookie(house: House) -> None:
    cookie = house.call(start_session, _ann(house))
    written = b"".join(path.read_bytes() for path in house.path.parent.iterdir())
    assert cookie.encode() not in written
    assert house.call(user_by_session, "\ud800") is None
