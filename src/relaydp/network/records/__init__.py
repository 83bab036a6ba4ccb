"""The process that has the records, and what passes between it and the network."""
