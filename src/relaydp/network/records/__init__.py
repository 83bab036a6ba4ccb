"""The process that has the records, and what it exchanges with the network process."""
