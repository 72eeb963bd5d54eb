"""Tokens: what lets a program in, as whom, and until when."""

import asyncio
import string
import zlib
from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_tower.agent_runs.accounts.token_text import hash_of, new_token, public_id_of
from control_tower.agent_runs.accounts.tokens import (
    actor_by_token,
    all_tokens,
    check_scopes,
    clean_label,
    make_token,
    revoke_token,
)
from control_tower.agent_runs.accounts.users import add_user, change_user
from control_tower.agent_runs.actor import SCOPES, Actor, Role
from control_tower.agent_runs.errors import BadRequest, NotFound
from tests.accounts.conftest import House

ROLES: list[Role] = ["reader", "member", "maintainer", "admin"]
DAY = 86400


def test_a_token_lets_in_as_its_owner_with_what_it_was_made_for(house: House) -> None:
    ann = house.call(add_user, "ann", "admin", None)
    made = house.call(make_token, ann, "laptop")
    actor = house.call(actor_by_token, made.text)
    assert actor == Actor(
        "ann", "ann", "admin", frozenset({"runs:read", "runs:write"}), made.token.id, made.token.expires
    )


def test_the_database_holds_no_secret(house: House) -> None:
    ann = house.call(add_user, "ann", "member", None)
    made = house.call(make_token, ann, "laptop")
    house.call(actor_by_token, made.text)
    written = b"".join(path.read_bytes() for path in house.path.parent.iterdir())
    assert made.token.id.encode() in written
    assert made.text[14:].encode() not in written
    assert made.text not in repr(made)


def test_a_token_is_written_so_that_typos_are_seen(house: House) -> None:
    public_id, text = new_token()
    assert text.startswith(f"ct_{public_id}_")
    assert len(text) == 3 + 10 + 1 + 43 + 6
    assert public_id_of(text) == public_id
    for position in range(len(text)):
        for other in "aZ3_":
            if other != text[position]:
                assert public_id_of(text[:position] + other + text[position + 1 :]) is None
    assert public_id_of(text[:-1]) is None
    assert public_id_of("") is None


@given(st.text(max_size=80))
def test_any_text_can_be_asked_about(text: str) -> None:
    assert public_id_of(text) is None
    assert hash_of(text)


@pytest.mark.parametrize("days", [1, 90, 365])
def test_a_token_ends_to_the_second(house: House, days: int) -> None:
    ann = house.call(add_user, "ann", "member", None)
    made = house.call(make_token, ann, "x", days=days)
    house.now += days * DAY - 1
    assert house.call(actor_by_token, made.text)
    house.now += 1
    assert house.call(actor_by_token, made.text) is None


def test_tokens_end_after_90_days_unless_said_and_never_only_for_services(house: House) -> None:
    ann = house.call(add_user, "ann", "member", "correct horse")
    bot = house.call(add_user, "bot", "member", None)
    assert house.call(make_token, ann, "x").token.expires == "2027-04-15T08:00:00.000000Z"
    assert house.call(make_token, bot, "x", days=0).token.expires is None
    for days in (0, -1, 366, float("nan"), float("inf")):
        with pytest.raises(BadRequest, match="at most 365"):
            house.call(make_token, ann, "x", days=days)


def test_a_revoked_token_lets_nobody_in_from_then_on(house: House) -> None:
    ann = house.call(add_user, "ann", "member", None)
    made, other = house.call(make_token, ann, "x"), house.call(make_token, ann, "y")
    revoked = house.call(revoke_token, made.token.id, owner="ann")
    house.now += 5
    assert house.call(revoke_token, made.token.id).revoked == revoked.revoked
    assert house.call(actor_by_token, made.text) is None
    assert house.call(actor_by_token, other.text)


def test_the_token_of_another_cannot_be_revoked(house: House) -> None:
    ann = house.call(add_user, "ann", "member", None)
    made = house.call(make_token, ann, "x")
    for owner, token_id in (("bob", made.token.id), (None, "0123456789")):
        with pytest.raises(NotFound):
            house.call(revoke_token, token_id, owner=owner)
    assert house.call(actor_by_token, made.text)


def test_a_lowered_role_or_a_kept_out_owner_counts_at_the_next_request(house: House) -> None:
    ann = house.call(add_user, "ann", "member", None)
    made = house.call(make_token, ann, "x")
    house.run(change_user(house.store, "ann", role="reader"))
    actor = house.call(actor_by_token, made.text)
    assert actor and actor.scopes == {"runs:read"}
    house.run(change_user(house.store, "ann", disabled=True))
    assert house.call(actor_by_token, made.text) is None
    house.run(change_user(house.store, "ann", role="admin", disabled=False))
    actor = house.call(actor_by_token, made.text)
    assert actor and actor.scopes == {"runs:read", "runs:write"}


def test_a_wrong_secret_of_a_known_token_lets_nobody_in(house: House) -> None:
    ann = house.call(add_user, "ann", "member", None)
    made = house.call(make_token, ann, "x")
    forged = _written(made.token.id, "a" * 43)
    assert public_id_of(forged) == made.token.id
    assert house.call(actor_by_token, forged) is None


def _written(public_id: str, secret: str) -> str:
    """A token's text as its format says: the checksum is the CRC-32 of the rest, in digits to the base 62."""
    body = f"ct_{public_id}_{secret}"
    number, checksum = zlib.crc32(body.encode()), ""
    for _ in range(6):
        number, index = divmod(number, 62)
        checksum += (string.ascii_letters + string.digits)[index]
    return body + checksum


def test_a_token_made_with_a_token_is_no_stronger(house: House) -> None:
    ann = house.call(add_user, "ann", "admin", None)
    weak = house.call(make_token, ann, "x", {"runs:read"}, days=1)
    actor = house.call(actor_by_token, weak.text)
    made = house.call(make_token, ann, "y", {"runs:read", "admin"}, days=300, at_most=actor)
    assert made.token.scopes == {"runs:read"}
    assert made.token.expires == weak.token.expires
    with pytest.raises(BadRequest, match="may not have"):
        house.call(make_token, ann, "y", {"admin"}, at_most=actor)


def test_use_is_noted_to_the_minute_with_the_network(house: House) -> None:
    ann = house.call(add_user, "ann", "member", None)
    made = house.call(make_token, ann, "x")
    house.now += 90
    house.call(actor_by_token, made.text, network="192.0.2.0/24")
    house.call(actor_by_token, made.text, network="198.51.100.0/24")
    (token,) = house.run(all_tokens(house.store, "ann"))
    assert (token.last_used, token.network) == ("2027-01-15T08:01:00.000000Z", "192.0.2.0/24")
    assert house.run(all_tokens(house.store, "bob")) == []


def test_a_token_revoked_while_it_is_used_stays_revoked(house: House) -> None:
    ann = house.call(add_user, "ann", "member", None)
    made = house.call(make_token, ann, "x")

    async def both() -> None:
        uses = [actor_by_token(house.store, house.now + 60 * n, made.text) for n in range(20)]
        await asyncio.gather(*uses[:10], revoke_token(house.store, house.now, made.token.id), *uses[10:])

    house.run(both())
    assert house.call(actor_by_token, made.text) is None


def test_a_token_never_does_more_than_was_asked_or_than_the_role_allows(house: House) -> None:
    every = sorted(SCOPES["admin"])
    asked = [set(each) for n in (1, 2, 3) for each in combinations(every, n)]
    for number, (role, wanted) in enumerate(product(ROLES, asked)):
        ann = house.call(add_user, f"ann{number}", role, None)
        if not wanted & SCOPES[role]:
            with pytest.raises(BadRequest, match="may not have"):
                house.call(make_token, ann, "x", check_scopes(wanted))
            continue
        made = house.call(make_token, ann, "x", check_scopes(wanted))
        for later in ROLES:
            house.run(change_user(house.store, ann.name, role=later))
            actor = house.call(actor_by_token, made.text)
            assert actor
            assert actor.scopes == wanted & SCOPES[role] & SCOPES[later]


@pytest.mark.parametrize("scopes", [[], ["runs:all"], ["runs:read", ""]])
def test_unknown_scopes_are_refused(scopes: list[str]) -> None:
    with pytest.raises(BadRequest, match="scope"):
        check_scopes(scopes)


@given(st.text(st.characters(), max_size=300))
def test_a_label_is_one_line_of_what_can_be_seen(label: str) -> None:
    shown = clean_label(label, "none")
    assert 0 < len(shown) <= 100
    assert shown.isprintable()
    assert clean_label("a\u202eb\x1b[31m\nc", "none") == "a b [31m c"
