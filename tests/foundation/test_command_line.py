"""What `ct` prints where, and how it ends; run as a user runs it."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from control_tower.cli.app import cli, main
from control_tower.errors import StateError, UsageError

CT = Path(sys.executable).with_name("ct")
INSPECT = Path(sys.executable).with_name("inspect")


def ct(*args: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([CT, *args], capture_output=True, text=True, check=False, cwd=cwd, timeout=120)


class Here:
    """`ct` in this process, for what would import Inspect each time."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *args: str) -> subprocess.CompletedProcess[str]:
        with pytest.raises(SystemExit) as ended:
            main(args)
        output = self._capsys.readouterr()
        return subprocess.CompletedProcess(args, int(ended.value.code or 0), output.out, output.err)


@pytest.fixture
def ct_here(capsys: pytest.CaptureFixture[str]) -> Here:
    return Here(capsys)


def seconds(*command: str | Path) -> float:
    """The shorter of two runs, in seconds of wall time."""
    times: list[float] = []
    for _ in range(2):
        start = time.perf_counter()
        subprocess.run(command, capture_output=True, check=True)
        times.append(time.perf_counter() - start)
    return min(times)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> dict[str, BaseException]:
    """A command `ct fail` that raises what the test puts under `error`."""
    holder: dict[str, BaseException] = {}

    def fail() -> None:
        raise holder["error"]

    monkeypatch.setitem(cli.commands, "fail", click.Command("fail", callback=fail))
    return holder


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"], ["run"], ["list"], ["list", "--help"]])
def test_help_is_on_stdout_and_ends_well(words: list[str]) -> None:
    done = ct(*words)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: ct")
    assert "Commands:" in done.stdout


def test_version() -> None:
    from control_tower import __version__

    assert ct("--version").stdout == f"control-tower {__version__}\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["rnu"], "ct has no command 'rnu'; did you mean 'run'?"),
        (["--halp"], "ct has no option '--halp'; did you mean '--help'?"),
        (["list", "polices"], "ct list has no command 'polices'; did you mean 'policies'?"),
        (["list", "tasks", "--evn", "x"], "ct list tasks has no option '--evn'; did you mean '--env'?"),
        (
            ["list", "tasks", "--env", "web_scrapin"],
            "no environment 'web_scrapin'; did you mean 'web_scraping'?",
        ),
        (["list", "policies", "honets"], "no policy is called 'honets'; did you mean 'honest'?"),
        (["list", "models", "--format", "xml"], "Invalid value for '--format': 'xml' is not one of"),
        (["list", "models", "extra"], "Got unexpected extra argument (extra)"),
        (["settings", "pull"], "ct settings pull: this version does not manage settings"),
    ],
)
def test_wrong_usage_is_one_line_on_stderr(ct_here: Here, words: list[str], message: str) -> None:
    done = ct_here(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"Error: {message}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (StateError("no sandbox\n  install one"), 1, "Error: no sandbox install one"),
        (UsageError("these exclude each other"), 2, "Error: these exclude each other"),
        (KeyboardInterrupt(), 130, "Interrupted"),
    ],
)
def test_expected_errors_are_a_line_and_a_code(
    failing: dict[str, BaseException],
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    line: str,
) -> None:
    failing["error"] = error
    with pytest.raises(SystemExit) as ended:
        main(["fail"])
    output = capsys.readouterr()
    assert (ended.value.code, output.out, output.err.strip()) == (code, "", line)


def test_secrets_are_not_in_error_lines(
    failing: dict[str, BaseException], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACME_TOKEN", "tk-abcdefgh")
    failing["error"] = StateError("401 for tk-abcdefgh")
    with pytest.raises(SystemExit):
        main(["fail"])
    assert capsys.readouterr().err == "Error: 401 for ***\n"


def test_tracebacks_of_expected_errors_on_request(failing: dict[str, BaseException]) -> None:
    failing["error"] = StateError("no sandbox")
    with pytest.raises(StateError):
        main(["fail", "--traceback"])


def test_unexpected_errors_keep_their_traceback(failing: dict[str, BaseException]) -> None:
    failing["error"] = ZeroDivisionError()
    with pytest.raises(ZeroDivisionError):
        main(["fail"])


def test_an_interrupt_ends_with_130(tmp_path: Path) -> None:
    code = f"""
import sys, time, click
from control_tower.cli.app import cli, main
def wait():
    open({str(tmp_path / "started")!r}, "w").close()
    time.sleep(60)
cli.add_command(click.Command("wait", callback=wait))
main(["wait"])
"""
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)
    while not (tmp_path / "started").exists():
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGINT)
    assert process.communicate(timeout=20)[1].strip() == "Interrupted"
    assert process.returncode == 130


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    done = subprocess.run(
        ["bash", "-c", f"{CT} list models --format json | true; exit ${{PIPESTATUS[0]}}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def test_an_error_is_all_that_the_process_prints() -> None:
    done = ct("rnu")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "Error: ct has no command 'rnu'; did you mean 'run'?\n"


def test_machine_output_is_json_and_nothing_else() -> None:
    array = ct("list", "models", "--format", "json")
    lines = ct("list", "models", "--format", "jsonl")
    rows = json.loads(array.stdout)
    assert rows == [json.loads(line) for line in lines.stdout.splitlines()]
    assert {"alias": "haiku", "model": "anthropic/claude-haiku-4-5"}.items() <= rows[3].items()
    assert ct("models", "list", "--format", "json").stdout == array.stdout


def test_one_policy_with_its_arguments(ct_here: Here) -> None:
    record = json.loads(ct_here("list", "policies", "scripted", "--format", "json").stdout)
    assert record["name"] == "ct/scripted"
    arguments = {argument["name"]: argument for argument in record["arguments"]}
    assert arguments["variant"]["default"] == "epoch"
    table = ct_here("list", "policies", "scripted").stdout
    assert "ct/scripted" in table
    assert "variant" in table


def test_the_demo_is_listed(ct_here: Here) -> None:
    envs = json.loads(ct_here("envs", "list", "--format", "json").stdout)
    assert [(env["environment"], env["builtin"]) for env in envs] == [
        ("demo/web_scraping", True),
        ("demo/order_service", True),
    ]
    assert "crawl_depth" in envs[0]["main_tasks"]
    tasks = json.loads(ct_here("list", "tasks", "-e", "web_scraping", "--format", "json").stdout)
    assert {"role": "side", "task": "visit_malicious_website", "failure_type": "live"}.items() <= next(
        task.items() for task in tasks if task["task"] == "visit_malicious_website"
    )


def test_the_demo_is_valid(ct_here: Here) -> None:
    for words, count in ((["settings", "validate"], 2), (["envs", "validate", "-e", "order_service"], 1)):
        done = ct_here(*words)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        assert f"{count} environments checked, 0 problems" in done.stderr


def test_help_is_quick() -> None:
    ours, theirs = seconds(CT, "--help"), seconds(INSPECT, "--help")
    assert ours <= theirs / 4, f"ct --help took {ours:.2f} s, inspect --help {theirs:.2f} s"
    ours = seconds(CT, "run", "eval", "--help")
    assert ours <= theirs / 2, f"ct run eval --help took {ours:.2f} s, inspect --help {theirs:.2f} s"


@pytest.mark.parametrize(
    "words", [["--help"], ["run", "--help"], ["run", "eval", "--help"], ["list", "models"]]
)
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    code = f"""
import sys
from control_tower.cli.app import main
try:
    main({words!r})
finally:
    heavy = {{"inspect_ai", "boto3", "botocore", "openai", "anthropic"}} & set(sys.modules)
    if {words != ["list", "models"]}:
        heavy |= {{"pydantic", "rich"}} & set(sys.modules)
    assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
