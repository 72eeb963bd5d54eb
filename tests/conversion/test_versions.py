"""Which logs are old, current, or too new, by their version alone."""

from pathlib import Path
from typing import Any

import pytest

from control_tower.conversion.convert import age_of_log, convert
from control_tower.conversion.version import Age
from control_tower.errors import ValidationError
from control_tower.logs.archive import EvalArchive
from control_tower.logs.zip_writer import new_archive
from tests.conversion.old_logs import Log, header_2x, header_old, sample_2x
from tests.logs.log_making import write_log


@pytest.mark.parametrize(
    ("version", "age"),
    [
        (None, Age.UNVERSIONED),
        ("", Age.BELOW_3),
        ("0", Age.BELOW_3),
        ("1.0", Age.BELOW_3),
        ("2.1", Age.BELOW_3),
        (2.5, Age.BELOW_3),
        ("2.0.7", Age.BELOW_3),
        ("3", Age.CURRENT),
        ("3.0", Age.CURRENT),
        ("3.0.1", Age.CURRENT),
        (3, Age.CURRENT),
    ],
)
def test_the_age_of_a_version(tmp_path: Path, version: Any, age: Age) -> None:
    path = write_log(tmp_path / "a.eval", header_2x(eval_version=version), [])
    assert age_of_log(path) is age


@pytest.mark.parametrize(
    ("version", "said"),
    [("4.0", "newer"), (4, "newer"), ("abc", "'abc' is no version"), (True, "no version")],
)
def test_versions_that_are_refused(tmp_path: Path, version: Any, said: str) -> None:
    path = write_log(tmp_path / "a.eval", header_2x(eval_version=version), [])
    with pytest.raises(ValidationError, match=f"a.eval: .*{said}"):
        age_of_log(path)


def test_metadata_may_be_null(tmp_path: Path) -> None:
    header = header_old(metadata=None)
    assert age_of_log(write_log(tmp_path / "a.eval", header, [])) is Age.UNVERSIONED


def test_a_log_without_samples(tmp_path: Path) -> None:
    assert Log(convert(write_log(tmp_path / "a.eval", header_2x([]), []), tmp_path / "b.eval")).samples == []
    with pytest.raises(ValidationError, match="too old"):
        convert(write_log(tmp_path / "c.eval", header_old(), []), tmp_path / "d.eval")


def test_a_log_of_which_only_the_header_is_there_is_refused(tmp_path: Path) -> None:
    whole = write_log(tmp_path / "a.eval", header_2x(), [sample_2x()])
    with EvalArchive.open(whole) as archive, new_archive(tmp_path / "b.eval") as writer:
        for member in ("header.json", "summaries.json"):
            writer.copy(archive.members, member)
    with pytest.raises(ValidationError, match="holds the header only"):
        convert(tmp_path / "b.eval", tmp_path / "c.eval")


def test_a_log_that_lacks_one_of_its_samples_is_refused(tmp_path: Path) -> None:
    whole = write_log(tmp_path / "a.eval", header_2x(), [sample_2x("s1"), sample_2x("s2")])
    with EvalArchive.open(whole) as archive, new_archive(tmp_path / "b.eval") as writer:
        for member in ("header.json", "summaries.json", "samples/s1_epoch_1.json"):
            writer.copy(archive.members, member)
    with pytest.raises(ValidationError, match="lists 1 samples that it does not hold, such as s2"):
        convert(tmp_path / "b.eval", tmp_path / "c.eval")


def test_a_log_that_was_not_finished_is_converted_as_cancelled(tmp_path: Path) -> None:
    path = write_log(tmp_path / "a.eval", header_2x(), [sample_2x()], finished=False)
    log = Log(convert(path, tmp_path / "b.eval"))
    assert (log.header["status"], len(log.samples)) == ("cancelled", 1)
