"""No form of a secret is left in a text, and the rest of the text is."""

import base64
import json
from urllib.parse import quote, quote_plus

import pytest

from control_tower.redactor import Redactor

SECRET = 'canary value/42+\u00e9"%'


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        json.dumps(SECRET)[1:-1],
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        quote(SECRET),
        quote(SECRET, safe=""),
        quote_plus(SECRET),
        base64.b64encode(SECRET.encode()).decode(),
        base64.urlsafe_b64encode(SECRET.encode()).decode(),
        SECRET.encode().hex(),
    ],
)
def test_a_secret_is_masked_in_every_form(form: str) -> None:
    text = Redactor([SECRET]).text(f"before {form} after")
    assert text.replace("=", "") == "before *** after"


@pytest.mark.parametrize("before", ["", "u", "us", "use", "user:"])
@pytest.mark.parametrize("after", ["", "x", "xy"])
def test_a_secret_within_an_encoded_text_is_masked(before: str, after: str) -> None:
    whole = base64.b64encode(f"{before}{SECRET}{after}".encode()).decode()
    left = Redactor([SECRET]).text(whole)
    assert "***" in left
    # At most the characters that hold bits of its neighbours stay.
    assert len(left) - len("***") <= len(base64.b64encode(f"{before}{after}".encode())) + 4


def test_the_longer_of_two_secrets_is_masked_whole() -> None:
    assert Redactor(["abcdefgh", "abcdefgh-ijkl"]).text("abcdefgh-ijkl abcdefgh") == "*** ***"


def test_lines_of_a_long_secret_are_masked_apart() -> None:
    key = "-----BEGIN-----\nline-one-of-it\nshort\n"
    assert Redactor([key]).text("log: line-one-of-it, short") == "log: ***, short"


def test_short_and_empty_values_mask_nothing() -> None:
    assert Redactor(["", "1234567", "   "]).text("a 1234567 b") == "a 1234567 b"


def test_what_looks_like_a_secret_is_masked_without_being_known() -> None:
    token = "sk-" + "a1B2" * 6
    shown = Redactor().text(f"http://user:pa55@host/x {token} risk-free https://host:80/a@b")
    assert shown == "http://user:***@host/x *** risk-free https://host:80/a@b"
