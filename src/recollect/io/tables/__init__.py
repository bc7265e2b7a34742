"""Tables of facts as people have them: files of many kinds, databases, and tables in memory."""

from recollect.io.tables.reading import read

__all__ = ["read"]
