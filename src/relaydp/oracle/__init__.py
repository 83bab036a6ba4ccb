"""The one access to records: private gradients, exact minimisers, and where noise comes from."""
