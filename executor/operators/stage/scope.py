"""The columns of a stage's rows, as its steps make them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cql.executor.codegen.expressions.emit import Code, HostSite
from cql.executor.codegen.kernel_builder import Lazy, RowScope
from cql.executor.codegen.morsel_io import morsel_columns
from cql.executor.operators.stage.spec import window_column_type
from cql.planner.nodes.physical import BucketExec

if TYPE_CHECKING:
    from cql.executor.operators.stage.stage_kernel import StageWriter


class StageScope(RowScope):
    """The columns as they stand after ``level`` steps."""

    def __init__(self, writer: StageWriter, level: int, *, skip: str | None = None) -> None:
        super().__init__(writer.kernel, "r", skip=skip)
        self.writer = writer
        self.level = level
        if writer.spec.partitioned:  # host columns hold only the rows of the partition
            self.place = "uint64(i)"
        self.name = ""
        if level == 0:
            self.columns = morsel_columns(writer.spec.input, sure=writer.spec.assume_valid)

    def is_masked(self, column: int) -> bool:
        """Whether a column that is not loaded yet can hold NULL."""
        entry = self.columns[column]
        return isinstance(entry, Lazy) and entry.mask is not None

    def next(self, columns: list[Code | Lazy]) -> StageScope:
        after = StageScope(self.writer, -1, skip=self._skip)
        after.level, after.columns, after.name = self.level + 1, columns, self.name
        after.index, after.place = self.index, self.place
        return after

    def host(self, site: HostSite) -> tuple[str, str]:
        return super().host(self.writer._hosts[self.level, site])

    def host_arguments(self, site: HostSite) -> list[tuple[str, str]]:
        return super().host_arguments(self.writer._hosts[self.level, site])

    @staticmethod
    def schema_type(step: BucketExec) -> str:
        return window_column_type(step.input.schema, step.window).storage
