"""What every text that matches a regular expression contains."""

from __future__ import annotations

import re

#: Characters with a meaning of their own outside of brackets.
_SPECIAL = frozenset(".^$*+?{}()[]|\\")
#: Letters that stand, behind a backslash, for a set of characters or a place.
_SETS = frozenset("dDwWsSbBAz")
#: How often what is before it is repeated.
_TIMES = re.compile(r"\{\d+(,\d*)?\}")


def required_text(pattern: str) -> str:
    """The longest part of the pattern that lies in each text with a match, as it is written; empty
    if none is found. Groups, brackets and what may be missing are left out."""
    if "|" in pattern or "(?" in pattern:
        return ""
    best, run, depth, at = "", "", 0, 0
    while at < len(pattern):
        c, at = pattern[at], at + 1
        literal = c
        if c == "\\":
            literal, at = pattern[at : at + 1], at + 1
            if literal.isalnum():
                if literal not in _SETS:
                    return ""
                literal = ""
        elif c in _SPECIAL:
            literal = ""
        if c == "[":
            at = _behind_brackets(pattern, at)
        elif c == "{" and (times := _TIMES.match(pattern, at - 1)):
            at = times.end()
        depth += (c == "(") - (c == ")")
        again = pattern[at : at + 1]
        if literal and not depth and not (again and again in "*?{"):
            run += literal
            if len(run) > len(best):
                best = run
            if again == "+":
                run = ""
        else:
            run = ""
    return best


def _behind_brackets(pattern: str, at: int) -> int:
    """The place behind the set whose bracket opens before ``at``."""
    if pattern[at : at + 1] == "^":
        at += 1
    if pattern[at : at + 1] == "]":
        at += 1
    while at < len(pattern) and pattern[at] != "]":
        if pattern[at] == "\\":
            at += 1
        elif pattern[at : at + 2] == "[:":
            at = max(pattern.find(":]", at), at) + 1
        at += 1
    return at + 1
