"""Data: records and their public ranges, read from files or from the catalogue."""

from relaydp.data.catalogue import CATALOGUE, catalogue_names, describe, load_data
from relaydp.data.formats import read_table
from relaydp.data.records import Records

__all__ = ["CATALOGUE", "Records", "catalogue_names", "describe", "load_data", "read_table"]
