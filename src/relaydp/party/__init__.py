"""One party of a run: its records, its noise and its part of the state. The network and the cluster share it."""
