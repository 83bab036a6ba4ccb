"""Running an agent: start, log, metrics, status page, and a whole consortium on one machine."""
