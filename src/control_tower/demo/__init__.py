"""The built-in setting: a whole evaluation without keys, Docker or network."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from control_tower.environments.environment import ControlEnvironment


def get_environments() -> dict[str, ControlEnvironment]:
    """The environments of the demo by id."""
    from control_tower.demo.web_scraping import environment

    return {environment.id: environment}
