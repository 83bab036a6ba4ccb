"""The version, in a file of its own, so that no module imports the top of the package."""

__version__ = "0.1.0"
