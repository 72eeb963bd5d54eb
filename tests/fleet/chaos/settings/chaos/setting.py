from pathlib import Path

from control_tower.settings.discovery import discover_envs_from_subdirs


def get_environments():
    return discover_envs_from_subdirs(Path(__file__).parent)
