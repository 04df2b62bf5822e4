"""The hints of a statement: settings for this statement alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cql.base.settings import Settings, find_setting
from cql.errors import PlanError

if TYPE_CHECKING:
    from sqlglot import exp


#: The beginning of a hint; a text without this has no hints.
HINT = "/*+"


def hinted(tree: exp.Expression, settings: Settings) -> Settings:
    """``settings``, changed by the hints after the first SELECT of the statement."""
    from cql.dialect import nodes, position_of

    outermost = _outermost(tree)
    clause = outermost.args.get("hint") if outermost is not None else None
    known = clause.expressions if clause is not None else []
    for hint in tree.find_all(nodes.PlanHint):
        place, name = position_of(hint), str(hint.this)
        if not any(hint is k for k in known):
            raise PlanError(
                "a hint stands behind the first SELECT of a statement",
                position=place,
                hint=f"move {name} there: it holds for the whole statement",
            )
        find_setting(name, place)
        if len(hint.expressions) != 1:
            raise PlanError(
                f"the hint {name} takes one value", position=place, hint=f"{name}(value)"
            )
        value = hint.expressions[0]
        settings = settings.with_(name, value.name, position_of(value))
    return settings


def refuse_run_hints(tree: exp.Expression, settings: Settings) -> None:
    """Raises PlanError if a query of a query set hints a setting that the set has only once."""
    from cql.session.applied import OF_RUN

    wanted = hinted(tree, settings)
    name = next((n for n in wanted if n in OF_RUN and wanted[n] != settings[n]), None)
    if name is not None:
        from cql.dialect import nodes, position_of

        hints = (h for h in tree.find_all(nodes.PlanHint) if str(h.this).lower() == name)
        hint = next(hints, None)
        raise PlanError(
            f"the hint {name} is for one query, and queries that start together have one {name}",
            position=None if hint is None else position_of(hint),
            hint=f"SET {name} before the set",
        )


def _outermost(tree: exp.Expression) -> exp.Expression | None:
    """The SELECT whose hints hold for the whole statement; None if the statement runs no query."""
    from cql.dialect import nodes

    node: Any = tree.this if isinstance(tree, nodes.Explain) else tree
    if isinstance(node, nodes.InsertInto | nodes.CreateTable | nodes.CreateMaterializedView):
        node = node.args.get("query")
    return nodes.first_select(node)
