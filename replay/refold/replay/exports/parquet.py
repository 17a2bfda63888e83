"""Parquet files of events, a row group at a time: for DuckDB, Polars, Spark and whatever else reads columns."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, BinaryIO, Self

from refold.reducers.errors import WrongUse
from refold.replay.exports.table import COLUMNS, ColumnType, TableRow

ROWS = 10_000
"""Rows of a row group: what is held in memory."""

_MOST_CHARS = 32 << 20  # of texts in a row group; a column of one cannot hold 2 GiB
_INT64 = 1 << 63


class ParquetFile:
    """Writes rows into an open file; as a context manager, its end too. Raises `WrongUse` where pyarrow is not installed."""

    def __init__(self, file: BinaryIO) -> None:
        arrow, parquet = _loaded()
        self._arrow = arrow
        self._schema = arrow.schema([(name, _type(arrow, kind)) for name, kind in COLUMNS.items()])
        self._writer = parquet.ParquetWriter(file, self._schema, compression="zstd")
        self._rows: list[TableRow] = []
        self._chars = 0

    def write(self, row: TableRow) -> None:
        """Add a row."""
        self._rows.append(row)
        self._chars += sum(len(value) for value in row.values() if isinstance(value, str))
        if len(self._rows) >= ROWS or self._chars >= _MOST_CHARS:
            self._flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                self._flush()
                self._writer.close()
        finally:
            # Else pyarrow ends the file once more when it collects the writer, in a file that is closed.
            self._writer.is_open = False

    def _flush(self) -> None:
        columns: Mapping[str, list[Any]] = {
            name: [_fits(row[name]) for row in self._rows] for name in COLUMNS
        }
        if self._rows:
            self._writer.write_table(self._arrow.table(dict(columns), schema=self._schema))
        self._rows, self._chars = [], 0


def _loaded() -> tuple[Any, Any]:
    try:
        # By name, for it has no types.
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError as error:
        raise WrongUse("--to parquet needs pyarrow: pip install 'refold[parquet]'") from error


def _type(arrow: Any, kind: ColumnType) -> Any:
    match kind:
        case "text":
            return arrow.string()
        case "integer":
            return arrow.int64()
        case "number":
            return arrow.float64()
        case "flag":
            return arrow.bool_()
        case "instant":
            return arrow.timestamp("ns")


def _fits(value: Any) -> Any:
    # A log's numbers have no end, a column's have: such a one is null here, and stands in the body.
    return None if isinstance(value, int) and not -_INT64 <= value < _INT64 else value
