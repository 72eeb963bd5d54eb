"""The built-in setting: whole evaluations without keys, Docker or network."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from control_tower.environments.environment import ControlEnvironment


def get_environments() -> dict[str, ControlEnvironment]:
    """The environments of the demo by id."""
    from control_tower.demo import order_service, web_scraping

    return {module.environment.id: module.environment for module in (web_scraping, order_service)}
