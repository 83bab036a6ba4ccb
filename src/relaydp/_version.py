"""The version, in a file of its own, so that no room imports the top of the package."""

__version__ = "0.1.0"
