"""Lengths of time: ``3 min``, ``INTERVAL '3' MINUTE``, ``'3 minutes'``, a parameter, a constant."""

from __future__ import annotations

from decimal import Decimal

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from cql.dialect import duration, nodes
from cql.dialect.base_parser import NAME_TOKENS, BaseParser
from cql.dialect.tokens import KEYWORDS
from cql.errors import did_you_mean

_KEYWORD_SET = frozenset(KEYWORDS)


class DurationParser(BaseParser):
    def parse_duration(self, what: str, *, signed: bool = False) -> exp.Expr:
        """``3 min``, ``INTERVAL '3' MINUTE``, ``'3 minutes'``, ``:w``, a constant, ``60``."""
        token = self._curr
        if self._match(TokenType.INTERVAL):
            if self._curr.token_type in (TokenType.NUMBER, TokenType.STRING, TokenType.DASH):
                length = self._measured(token, what, unit_needed=True)
                return self._not_below_zero(length, token, what, signed)
            self.refuse("expected a number or a string after INTERVAL", hint="INTERVAL '5' SECOND")
        if token.token_type in (TokenType.NUMBER, TokenType.STRING, TokenType.DASH):
            length = self._measured(token, what, unit_needed=False)
            return self._not_below_zero(length, token, what, signed)
        if self._match(TokenType.COLON):
            return self._parameter()
        if self._match(TokenType.PLACEHOLDER):
            self.refuse("a parameter needs a name", token, hint="name it, as in :n")
        is_word = token.token_type == TokenType.VAR and token.text.upper() not in _KEYWORD_SET
        if is_word or token.token_type == TokenType.IDENTIFIER:
            if self._next.text.upper() in duration.UNITS:
                self.refuse(f"{token.text!r} is not a number", hint="for example 10 MINUTES")
            return self.placed(exp.Column(this=self.name()), token)
        raise self.refusal(
            f"{what} needs a length of time", hint="for example 1 MINUTE or 1.5 HOURS"
        )

    def _not_below_zero(self, length: exp.Expr, token: Token, what: str, signed: bool) -> exp.Expr:
        number = length.this if isinstance(length, nodes.Duration) else length
        if (isinstance(number, exp.Neg) or number.name.startswith("-")) and not signed:
            self.refuse(f"{what} cannot be negative", token)
        return length

    def _measured(self, first: Token, what: str, *, unit_needed: bool) -> exp.Expr:
        negative = self._match(TokenType.DASH)
        sign = Decimal(-1 if negative else 1)
        token = self._curr
        if token.token_type not in (TokenType.NUMBER, TokenType.STRING):
            self.refuse(f"{what} needs a length of time", first)
        parts: list[tuple[Decimal, str]] = []
        if token.token_type == TokenType.STRING:
            text = token.text.strip()
            self._advance()
            if not duration.is_duration_number(text.lstrip("+-")):
                parts = self._parts_of_text(token)
            else:
                bare = text.lstrip("+-")
                negative_text = text.startswith("-")
                value = self._duration_number(bare, token)
                parts = [(-value if negative_text else value, self._unit_word(True) or "")]
        else:
            while self._curr.token_type == TokenType.NUMBER:
                number = self._curr
                value = self._duration_number(number.text, number)
                self._advance()
                unit = self._unit_word(unit_needed or bool(parts))
                if unit is None:
                    literal = self.placed(exp.Literal.number(number.text), number)
                    return self.placed(exp.Neg(this=literal), first) if negative else literal
                parts.append((value, unit))
        both = duration.combine(parts)
        if both is None:
            self.refuse(
                "months and years do not add up with other units", first, hint="use days or hours"
            )
        return self.placed(duration.make_duration(both[0] * sign, both[1]), first)

    def _duration_number(self, text: str, token: Token) -> Decimal:
        if not duration.is_duration_number(text) or len(text) > 18:
            self.refuse(f"{text!r} is not a length of time", token, hint="for example 90 or 1.5")
        return Decimal(text)

    def _unit_word(self, needed: bool) -> str | None:
        token = self._curr
        word = token.text.upper()
        if token.token_type in NAME_TOKENS and word in duration.UNITS:
            self._advance()
            return duration.UNITS[word]
        if token.token_type == TokenType.VAR and word not in _KEYWORD_SET:
            hint = did_you_mean(word, duration.UNIT_WORDS)
            self.refuse(
                f"unknown unit of time {token.text!r}",
                token,
                hint=hint or "units: ms, seconds, minutes, hours, days, weeks",
            )
        if needed:
            self.refuse("expected a unit of time", hint="for example SECOND or MINUTE")
        return None

    def _parts_of_text(self, token: Token) -> list[tuple[Decimal, str]]:
        parts = duration.read_text(token.text)
        if parts is None:
            self.refuse(
                f"{token.text!r} is not a length of time", token, hint="for example '10 seconds'"
            )
        for value, unit in parts:
            if unit not in duration.UNITS.values():
                hint = did_you_mean(unit, duration.UNIT_WORDS)
                self.refuse(f"unknown unit of time {unit!r}", token, hint=hint)
            if len(str(value)) > 19:
                self.refuse(f"{token.text!r} is not a length of time", token)
        return parts

    def _parse_interval(
        self, require_interval: bool = True, parse_function_unit: bool = True
    ) -> exp.Add | exp.Interval | None:
        """``INTERVAL '5' SECOND`` in an expression: one number, one unit, singular."""
        if self._curr.token_type != TokenType.INTERVAL:
            return None
        token = self._curr
        length = self.parse_duration("INTERVAL", signed=True)
        if not isinstance(length, nodes.Duration):
            self.refuse("expected a unit of time after INTERVAL …", token)
        return self.placed(
            exp.Interval(this=exp.Literal.string(length.this.name), unit=exp.Var(this=length.unit)),
            token,
        )
