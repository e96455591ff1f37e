"""Records of a stream: an id is recorded once, however often the stream brings it and however often it is begun anew.

A table of ids stands beside the records and is written in the same transaction; there is one writer at a time, so what
is not in the table cannot come into it between the look and the write. The id is also the `request` of the record.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, fields

from secondguess.service.records import INSERT, Record, Records

__all__ = ["OnceRecords"]

TABLE = """CREATE TABLE IF NOT EXISTS secondguess_stream (
  id TEXT PRIMARY KEY,
  number BIGINT NOT NULL REFERENCES secondguess_records (number)
)"""
COLUMNS = ", ".join(f"r.{field.name}" for field in fields(Record) if field.name != "thumbnail")
AT_ONCE = 500  # ids in a query


class OnceRecords(Records):
    """Records that hold every id once.

    Args:
        where: an SQLite file, or the URL of a PostgreSQL database; a service may keep its records there, too.
    """

    def __init__(self, where: str) -> None:
        super().__init__(where)
        try:
            with self._base.transaction():
                self._base.run(TABLE)
        except BaseException:
            self._base.close()
            raise

    def append(self, records: Sequence[Record]) -> None:
        """Add the rows whose ids are new; they are on disk when this returns, or none if it raises `DatabaseFailed`."""
        with self._base.transaction():
            known = self.recorded(one.request for one in records)
            new: dict[str, Record] = {}
            for one in records:
                if one.request not in known:
                    new.setdefault(one.request, one)
            if new:
                last = self._base.rows("SELECT COALESCE(MAX(number), 0) FROM secondguess_records")[0][0]
                self._base.run_many(INSERT, [(self._period, *astuple(one)) for one in new.values()])
                self._base.run(
                    "INSERT INTO secondguess_stream (id, number) "
                    "SELECT request, number FROM secondguess_records WHERE number > ?",
                    (last,),
                )

    def recorded(self, ids: Iterable[str]) -> dict[str, Record]:
        """The records of those ids that have one, without thumbnails."""
        asked = list(dict.fromkeys(ids))
        found: dict[str, Record] = {}
        for start in range(0, len(asked), AT_ONCE):
            some = asked[start : start + AT_ONCE]
            rows = self._base.rows(
                f"SELECT s.id, {COLUMNS} FROM secondguess_stream s JOIN secondguess_records r ON r.number = s.number "
                f"WHERE s.id IN ({', '.join('?' * len(some))})",
                some,
            )
            found |= {str(name): Record(*values) for name, *values in rows}
        return found
