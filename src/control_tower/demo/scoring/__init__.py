"""How the demo's scorers work: what the agent left runs on its own machine, and a server's log is judged."""
