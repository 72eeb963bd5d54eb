"""`ct`: one thin module a command group."""
