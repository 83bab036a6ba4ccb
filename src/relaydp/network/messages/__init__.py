"""What parties send each other: messages, the journal, and the choice of the baton's next holder."""
