"""How the demo's scorers work: random sites, a trial of the agent's crawler, the server's own request log."""
