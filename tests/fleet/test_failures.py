"""Why attempts failed: by classes, statuses and places; what a text says decides nothing."""

import errno
from types import CodeType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control_tower.errors import OperationError, StateError
from control_tower.fleet.attempt_files import Phase
from control_tower.fleet.failures import category_of, exit_category, fault_of, fingerprint, summary
from control_tower.fleet.outcomes import Category

MODEL = "/lib/site-packages/inspect_ai/model/_model.py"
SANDBOX = "/src/control_tower/sandbox/machine.py"
SETTING = "/settings/shop/policy.py"

TEXTS = st.one_of(
    st.text(max_size=200),
    st.sampled_from(["429 Too Many Requests", "No space left on device", "ModuleNotFoundError: x"]),
)


class Refused(Exception):
    """An error as services' packages raise them."""

    def __init__(self, status: int, code: str | None = None, headers: dict[str, str] | None = None) -> None:
        super().__init__(f"status {status}")
        self.status_code = status
        self.code = code
        self.response = type("Response", (), {"status_code": status, "headers": headers or {}})()


def raised(error: BaseException, file: str) -> BaseException:
    """The exception as if it had been raised in a file."""
    code: CodeType = compile("raise error", file, "exec")
    try:
        exec(code, {"error": error})
    except BaseException as caught:  # noqa: BLE001
        return caught
    raise AssertionError


@pytest.mark.parametrize(
    ("status", "category"),
    [
        (429, "rate_limit"),
        (529, "rate_limit"),
        (402, "quota"),
        (403, "quota"),
        (401, "prerequisite"),
        (404, "prerequisite"),
        (500, "network"),
        (400, "eval_error"),
    ],
)
def test_a_status_counts_where_a_model_was_asked(status: int, category: Category) -> None:
    assert category_of(raised(Refused(status), MODEL), "sample") == category
    assert category_of(raised(Refused(status), SETTING), "sample") == "eval_error"


def test_a_quota_that_is_spent_is_not_waited_for() -> None:
    assert category_of(raised(Refused(429, "insufficient_quota"), MODEL), "sample") == "quota"


def test_the_wait_that_a_service_asks_for_is_kept_from_under_what_was_raised_on_top() -> None:
    try:
        raise RuntimeError("gave up") from raised(Refused(429, headers={"retry-after": "12"}), MODEL)
    except RuntimeError as error:
        fault = fault_of(error, "sample")
    assert (fault.category, fault.retry_after_s, fault.kind) == ("rate_limit", 12.0, "RuntimeError")


@pytest.mark.parametrize(
    ("error", "file", "phase", "category"),
    [
        (ConnectionResetError(), MODEL, "sample", "network"),
        (ConnectionError(), SANDBOX, "sample", "sandbox"),
        (ConnectionError(), SETTING, "sample", "eval_error"),
        (OSError(errno.ENOSPC, "full"), SETTING, "sample", "disk"),
        (OSError(errno.ENOSPC, "full"), SANDBOX, "sample", "eval_error"),
        (MemoryError(), SETTING, "scoring", "oom_job"),
        (ModuleNotFoundError("numpy"), SETTING, "sample", "prerequisite"),
        (StateError("set a key"), SETTING, "start", "prerequisite"),
        (OperationError("no answer"), SETTING, "scoring", "eval_error"),
        (StateError("not ready"), SANDBOX, "sandbox", "sandbox"),
        (RuntimeError(), SETTING, "start", "eval_internal"),
        (ExceptionGroup("", [MemoryError()]), SETTING, "sample", "oom_job"),
    ],
)
def test_classes_places_and_phases_decide(
    error: BaseException, file: str, phase: Phase, category: Category
) -> None:
    assert category_of(raised(error, file), phase) == category


@given(kind=st.sampled_from([RuntimeError, ValueError, KeyError, TimeoutError]), text=TEXTS, other=TEXTS)
def test_no_text_decides(kind: Any, text: str, other: str) -> None:
    for file in (MODEL, SETTING, SANDBOX):
        first, second = (category_of(raised(kind(one), file), "sample") for one in (text, other))
        assert first == second


@given(text=TEXTS)
def test_a_summary_is_one_short_printable_line(text: str) -> None:
    line = summary(fault_of(raised(RuntimeError(text * 10), SETTING), "sample"), text * 10)
    assert len(line) <= 500 and line.isprintable() and line.startswith("RuntimeError (policy.py:")


def test_failures_of_one_cause_have_one_fingerprint() -> None:
    first = fingerprint("eval_error", "E", "a.py:f", "no /tmp/x1/y at 0x7f00aa11bb in 3 s")
    assert first == fingerprint("eval_error", "E", "a.py:f", "no /var/z at 0xdeadbeef99 in 14 s")
    assert first != fingerprint("eval_error", "E", "a.py:g", "no /tmp/x1/y at 0x7f00aa11bb in 3 s")


def test_processes_without_an_account_are_told_by_code_and_counter() -> None:
    assert exit_category(-9, out_of_memory=True) == "oom_job"
    assert exit_category(-9) == "oom_worker"
    assert exit_category(-11) == exit_category(7) == "eval_internal"
