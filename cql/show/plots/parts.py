"""What a kind of picture does, and the columns of batches as numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cql.errors import RunError
from cql.show.plots.times import TimeAxis
from cql.show.plots.trace import Numbers

if TYPE_CHECKING:
    import pyarrow as pa
    from matplotlib.axes import Axes

    from cql.query.query import Query


class Drawing(Protocol):
    """A picture of the rows of a query."""

    @property
    def axis(self) -> TimeAxis: ...

    @property
    def panels(self) -> int:
        """The number of panels, one below the other."""
        ...

    @property
    def height(self) -> float:
        """Of a panel, in inches."""
        ...

    @property
    def fills_panels(self) -> bool:
        """Whether nothing behind the picture is visible, so that marks lie above it."""
        ...

    @property
    def about(self) -> str:
        """What the picture shows, in a few words."""
        ...

    def read(self, query: Query) -> None:
        """Runs the query and keeps what the picture needs; RunError if there are no rows."""
        ...

    def draw(self, panels: Sequence[Axes]) -> None: ...


def nothing() -> RunError:
    return RunError("the query gave no rows, so there is nothing to draw")


def numbers(column: pa.Array[Any]) -> Numbers:
    """The numbers of a column; NULL is NaN."""
    import pyarrow as pa

    found: Numbers = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return found


def times(column: pa.Array[Any]) -> NDArray[np.int64]:
    """The microseconds of a column of timestamps without NULL."""
    import pyarrow as pa

    found: NDArray[np.int64] = column.cast(pa.int64()).to_numpy(zero_copy_only=False)
    return found


def lists(column: pa.Array[Any]) -> tuple[Any, NDArray[np.int64]]:
    """The values of all lists of a column, one after the other, and the length of each list."""
    lengths = column.value_lengths().fill_null(0).to_numpy(zero_copy_only=False)
    return column.flatten(), lengths.astype(np.int64)
