"""A dataset ready for reading: fragments with row counts, and how to open each."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator

import pyarrow as pa

from trireme.data._fragment_slice import FragmentSlice, checked, function_processes
from trireme.data._plan import Plan, Shuffle
from trireme.data._promotion import conform, widened

# The assumed size of a text or list of unknown size.
_VARYING_BYTES = 32.0


class Planned:
    """Picklable: workers receive it from the driver, and read the same rows in the same order.

    fragments: rows, estimated bytes, and name of each. decoding_bytes: memory for reading one, in addition to its rows.
    remote: reading may fail temporarily. fingerprint: changes when the data or the operations change.
    """

    def __init__(self, plan: Plan) -> None:
        plan.count()
        self.schema: pa.Schema = plan.schema()
        self.shuffle: Shuffle | None = plan.shuffle
        self.name: str = plan.source.name
        self._pieces = [piece for piece in plan.pieces() if piece.rows]
        per_row, share = plan.bytes_per_row(), _share(plan)
        self.fragments: list[tuple[int, int, str]] = [
            (piece.rows or 0, _size(piece, per_row, share, self.schema), piece.name) for piece in self._pieces
        ]
        self.decoding_bytes: int = max((piece.decoding_bytes for piece in self._pieces), default=0)
        self.remote: bool = any(piece.remote for piece in self._pieces)
        self.has_functions: bool = any(piece.has_functions for piece in self._pieces)
        # Rows are divided among workers one by one if they are slow to compute. Functions that change the number of
        # rows prevent this: they need all preceding rows.
        costly = self.has_functions or any(piece.costly for piece in self._pieces)
        self.costly: bool = costly and all(piece.keeps_rows for piece in self._pieces)
        self.fingerprint: str = self._fingerprint()

    @property
    def rows(self) -> int:
        return sum(rows for rows, _, _ in self.fragments)

    def piece(self, index: int) -> FragmentSlice:
        return self._pieces[index]

    def function_processes(self) -> int:
        """The processes that call its functions in this process's reads."""
        return function_processes(self._pieces) or 0

    def reads(self) -> Reads:
        return Reads(self)

    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        digest.update(str([(field.name, str(field.type)) for field in self.schema]).encode())
        for piece in self._pieces:
            digest.update(repr((piece.rows, piece.identity())).encode())
        return digest.hexdigest()


class Reads:
    """The reads of one iterator: the schema of its batches, which functions may widen, and the last error."""

    def __init__(self, planned: Planned) -> None:
        self.schema = planned.schema
        self._planned = planned
        self._wider: pa.Schema | None = None
        self._error: BaseException | None = None
        self._lock = threading.Lock()

    def open(self, index: int, row: int = 0) -> tuple[pa.RecordBatchReader, int]:
        """A fragment's rows from `row` on, as an Arrow stream, and its first row. Callable from any thread."""
        schema = self.schema
        try:
            piece = self._planned.piece(index)
            direct = piece.reader(row)
            if direct is not None and direct[0].schema.equals(schema):
                return direct
            batches, first = piece.batches(row=row)
        except BaseException as error:
            self._keep(error)
            raise
        return pa.RecordBatchReader.from_batches(schema, self._guarded(piece, batches, schema, first)), first

    def take_error(self) -> BaseException | None:
        """The last exception raised while reading. The stream itself carries only its text."""
        with self._lock:
            error, self._error = self._error, None
            return error

    def widen(self) -> bool:
        """Whether the reads have failed only because a batch needs a wider type, which the next reads will have."""
        with self._lock:
            wider, self._wider = self._wider, None
            if wider is None or not isinstance(self._error, _Widened):
                return False
            before = self.schema
            self.schema = widened(before, wider, self._planned.name)
            self._error = None
            return self.schema is not before

    def _guarded(
        self, piece: FragmentSlice, batches: Iterator[pa.RecordBatch], schema: pa.Schema, first: int
    ) -> Iterator[pa.RecordBatch]:
        row = first
        try:
            for batch in checked(batches, (piece.rows or 0) - first, piece.name):
                if not batch.schema.equals(schema):
                    with self._lock:
                        known = self._wider or schema
                    wider = widened(known, batch.schema, piece.name, batch, row)
                    if not wider.equals(schema):
                        raise _Widened(wider)
                yield conform(batch, schema, piece.name, row)
                row += batch.num_rows
        except GeneratorExit:
            raise
        except BaseException as error:
            self._keep(error)
            raise

    def _keep(self, error: BaseException) -> None:
        with self._lock:
            if isinstance(error, _Widened):
                self._wider = error.schema
                if self._error is not None:
                    return
            self._error = error


class _Widened(Exception):
    """Reading stops, and continues with this schema."""

    def __init__(self, schema: pa.Schema) -> None:
        super().__init__(f"a batch needs the schema {schema}")
        self.schema = schema


def _size(piece: FragmentSlice, per_row: float | None, share: float, schema: pa.Schema) -> int:
    rows = piece.rows or 0
    if piece.count.size_bytes is not None and piece.counted is piece:
        return piece.count.size_bytes
    if per_row is not None:
        return int(per_row * rows)
    known = piece.size_bytes
    return int(known * share) if known is not None else rows * int(_width(schema))


def _share(plan: Plan) -> float:
    """The ratio of output to fragment size if columns are dropped or added."""
    root = plan.root()
    inner = getattr(root.source, "plan", None)
    below = _share(inner) if isinstance(inner, Plan) else 1.0
    return below if root is plan else below * _width(plan.schema()) / max(_width(root.schema()), 1)


def _width(schema: pa.Schema) -> float:
    """Bytes of a row, by the types of its columns."""
    return sum(_bytes_of(field.type) for field in schema)


def _bytes_of(kind: pa.DataType) -> float:
    if isinstance(kind, pa.BaseExtensionType):
        return _bytes_of(kind.storage_type)
    if pa.types.is_fixed_size_list(kind):
        return _bytes_of(kind.value_type) * float(kind.list_size)
    return kind.bit_width / 8 if pa.types.is_primitive(kind) else _VARYING_BYTES
