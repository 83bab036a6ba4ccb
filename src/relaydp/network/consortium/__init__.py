"""What the parties agree on: the consortium file, its plan, its limits, and the parties' identities."""
