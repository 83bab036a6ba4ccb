"""What parties send each other: messages, the journal behind them, and where the baton goes next."""
