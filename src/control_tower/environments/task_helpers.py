"""Small questions about environments and task folders that have no better home."""

from pathlib import Path


def default_display_name(env_id: str) -> str:
    """A title made of an environment's id: `web_scraping` becomes `Web Scraping`."""
    return " ".join(word.capitalize() for word in env_id.split("_"))


def is_idea_phase(path: Path) -> bool:
    """Whether a task is only thought of: its name ends in `idea`, or it holds nothing but a readme."""
    if path.name.replace("-", "_").rsplit("_", 1)[-1].lower() == "idea":
        return True
    entries = [entry for entry in path.iterdir() if entry.name != "__pycache__"]
    return len(entries) == 1 and entries[0].is_file() and entries[0].stem.lower() == "readme"


def is_empty_task(path: Path) -> bool:
    """Whether a task folder holds nothing but caches."""
    return all(entry.name == "__pycache__" for entry in path.iterdir())
