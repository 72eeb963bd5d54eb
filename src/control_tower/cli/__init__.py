"""`ct`: one thin module a command group."""

from control_tower.cli.app import main

__all__ = ["main"]
