"""Logins that are approved elsewhere: pending, approved once, denied, expired, asked about too often."""

import asyncio

import pytest

from control_tower.agent_runs.accounts import devices
from control_tower.agent_runs.accounts.tokens import DEFAULT_SCOPES, NewToken, actor_by_token, all_tokens
from control_tower.agent_runs.accounts.users import User, add_user, change_user
from control_tower.agent_runs.errors import BadRequest, Conflict
from tests.accounts.conftest import House


def _start(house: House, *scopes: str) -> devices.Started:
    return house.call(devices.start, "laptop", scopes or DEFAULT_SCOPES, "192.0.2.0/24")


def _ann(house: House, role: str = "member") -> User:
    return house.call(add_user, "ann", role, None)


def test_a_login_gives_its_token_once_it_is_approved_and_only_once(house: House) -> None:
    ann, started = _ann(house), _start(house)
    assert house.call(devices.poll, started.device_code) == "authorization_pending"
    house.call(devices.decide, started.user_code, ann, approve=True)
    made = house.call(devices.poll, started.device_code)
    assert isinstance(made, NewToken)
    actor = house.call(actor_by_token, made.text)
    assert actor
    assert actor.user_id == "ann"
    assert house.call(devices.poll, started.device_code) == "expired_token"
    assert len(house.run(all_tokens(house.store))) == 1


def test_of_two_that_ask_at_once_one_gets_the_token(house: House) -> None:
    ann, started = _ann(house), _start(house)
    house.call(devices.decide, started.user_code, ann, approve=True)

    async def both() -> list[object]:
        return await asyncio.gather(
            *(devices.poll(house.store, house.now, started.device_code) for _ in range(5))
        )

    found = house.run(both())
    assert sum(isinstance(each, NewToken) for each in found) == 1
    assert found.count("expired_token") == 4


def test_who_asks_too_often_has_to_wait_longer(house: House) -> None:
    started = _start(house)
    assert house.call(devices.poll, started.device_code) == "authorization_pending"
    # Each question that comes too soon makes the interval of 5 seconds 5 seconds longer.
    for seconds in (4, 9, 14):
        house.now += seconds
        assert house.call(devices.poll, started.device_code) == "slow_down"
    house.now += 20
    assert house.call(devices.poll, started.device_code) == "authorization_pending"


def test_a_denied_login_gives_nothing(house: House) -> None:
    ann, started = _ann(house), _start(house)
    house.call(devices.decide, started.user_code, ann, approve=False)
    assert house.call(devices.poll, started.device_code) == "access_denied"
    with pytest.raises(Conflict):
        house.call(devices.decide, started.user_code, ann, approve=True)
    assert house.call(devices.poll, started.device_code) == "access_denied"


@pytest.mark.parametrize("approved", [False, True])
def test_a_login_expires_after_ten_minutes(house: House, approved: bool) -> None:
    ann, started = _ann(house), _start(house)
    house.now += devices.EXPIRES_IN - 1
    assert house.call(devices.asked, started.user_code)
    if approved:
        house.call(devices.decide, started.user_code, ann, approve=True)
    house.now += 1
    assert house.call(devices.asked, started.user_code) is None
    assert house.call(devices.poll, started.device_code) == "expired_token"
    with pytest.raises(Conflict):
        house.call(devices.decide, started.user_code, ann, approve=True)


def test_a_login_is_decided_once(house: House) -> None:
    ann, started = _ann(house), _start(house)
    house.call(devices.decide, started.user_code, ann, approve=True)
    for approve in (True, False):
        with pytest.raises(Conflict):
            house.call(devices.decide, started.user_code, ann, approve=approve)


def test_who_may_less_gives_less(house: House) -> None:
    ann, started = _ann(house, "reader"), _start(house)
    house.call(devices.decide, started.user_code, ann, approve=True)
    made = house.call(devices.poll, started.device_code)
    assert isinstance(made, NewToken)
    assert made.token.scopes == {"runs:read"}


def test_who_may_nothing_of_it_cannot_approve(house: House) -> None:
    ann, started = _ann(house), _start(house, "admin")
    with pytest.raises(BadRequest, match="may do nothing"):
        house.call(devices.decide, started.user_code, ann, approve=True)
    house.call(devices.decide, started.user_code, ann, approve=False)


def test_who_was_kept_out_meanwhile_gives_nothing(house: House) -> None:
    ann, started = _ann(house), _start(house)
    house.call(devices.decide, started.user_code, ann, approve=True)
    house.run(change_user(house.store, "ann", disabled=True))
    assert house.call(devices.poll, started.device_code) == "access_denied"


def test_a_code_is_read_in_any_writing(house: House) -> None:
    started = _start(house)
    code = started.user_code
    assert len(code) == 9
    assert not set(code) & set("AEIOUY0123456789")
    for written in (code.lower(), code.replace("-", ""), f" {code[:4]} {code[5:]} "):
        found = house.call(devices.asked, written)
        assert found
        assert (found.label, found.network) == ("laptop", "192.0.2.0/24")
    assert house.call(devices.asked, "") is None
    assert house.call(devices.asked, code[:-1]) is None


def test_the_secret_of_a_login_is_not_in_the_database(house: House) -> None:
    started = _start(house)
    written = b"".join(path.read_bytes() for path in house.path.parent.iterdir())
    assert started.device_code.encode() not in written
    assert started.device_code not in repr(started)
    assert house.call(devices.poll, "unknown") == "expired_token"
