"""The tables of the cricket backend and of the instance that serves it."""

from tally.app import CATALOGUE
from tally.store.catalogue import Catalogue

TABLES = Catalogue({name: CATALOGUE.backends[name] for name in ("cricket", "instance")}).tables()
