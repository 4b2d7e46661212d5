"""Reads what a person typed into a search box into an FTS5 expression that cannot fail."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from .search_text import ends_indexable, is_indexable, open_end, prepare

MAX_QUERY_CHARS = 2048

# A phrase in balanced quotes, typographic ones too; or a word, into which a quote without a partner
# is counted.
_PIECE = re.compile(
    r"""
      "(?P<plain>[^"]*)"(?P<star>\*)?
    | “(?P<curly>[^“”]*)”(?P<curly_star>\*)?
    | (?P<word>(?:[^\s"“] | "(?![^"]*") | “(?![^“”]*”))+)
    """,
    re.VERBOSE,
)
_OPERATORS = frozenset({"AND", "OR", "NOT"})
_UNWRITABLE = re.compile("[\0\ud800-\udfff]")


class Query(msgspec.Struct, frozen=True):
    """What to ask the index, and what to do where the index has no answer.

    Attributes:
        match: an FTS5 expression in which every term is a quoted literal; None where nothing typed
            is a word.
        relaxed: asked when `match` finds nothing: the same without the operators that had no
            operand.
        literals: what to mark in a snippet, as it was typed, longest first; nothing that NOT ruled
            out.
        scan: what to look for in the messages themselves where `match` is None; None for a blank
            query.
        beginnings: those of the literals that are the beginning of a word.
        relaxed_literals: the literals that `relaxed` asks for.
    """

    match: str | None
    relaxed: str | None
    literals: tuple[str, ...]
    scan: str | None
    beginnings: frozenset[str] = frozenset()
    relaxed_literals: tuple[str, ...] = ()


class _Term(msgspec.Struct, frozen=True):
    literal: str
    expression: str | None  # None where it holds no token
    begins: bool = False


class _Operator(msgspec.Struct, frozen=True):
    word: str


class _Group(msgspec.Struct):
    """Terms that must all be there, and terms that must not."""

    wanted: list[_Term]
    refused: list[_Term]


def parse(query: str) -> Query:
    """Read a query. Never raises: what is no operator between two operands is a literal.

    AND, OR and NOT in capitals are operators; NOT binds tighter than AND, AND tighter than OR, and
    terms side by side are joined by AND. `"a phrase"` stands together; a star at the end of a word
    means "begins with".
    """
    asked = _UNWRITABLE.sub(" ", query)[:MAX_QUERY_CHARS].strip()
    pieces = _pieces(asked)
    first, last = _operands(pieces)
    inner, dangling = pieces[first:last], pieces[:first] + pieces[last:]
    groups = _groups(_literal(pieces[:first]) + inner + _literal(pieces[last:]))
    match = _expression(groups)
    relaxed_groups = _groups(inner) if dangling else []
    relaxed = _expression(relaxed_groups)
    relaxed = None if relaxed == match else relaxed
    terms = [term for group in groups for term in group.wanted]
    wanted = [term.literal for term in terms]
    operated = any(isinstance(piece, _Operator) for piece in inner)
    return Query(
        match=match,
        relaxed=relaxed,
        literals=_longest_first(wanted),
        scan=None if match else (wanted[0] if operated and wanted else asked) or None,
        beginnings=frozenset(term.literal for term in terms if term.begins),
        relaxed_literals=_longest_first(
            term.literal for group in relaxed_groups if relaxed for term in group.wanted
        ),
    )


def _longest_first(literals: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(dict.fromkeys(literals), key=len, reverse=True))


def _pieces(asked: str) -> list[_Term | _Operator]:
    pieces: list[_Term | _Operator] = []
    for piece in _PIECE.finditer(asked):
        word = piece["word"]
        if word in _OPERATORS:
            pieces.append(_Operator(word))
        elif word is not None:
            pieces.append(_word(word))
        else:
            phrase = piece["plain"] if piece["plain"] is not None else piece["curly"]
            if phrase.strip():
                pieces.append(_term(phrase.strip(), starred=bool(piece["star"] or piece["curly_star"])))
    return pieces


def _word(word: str) -> _Term:
    stem = word.rstrip("*")
    if stem != word and ends_indexable(prepare(stem).rstrip()):
        return _term(stem, starred=True)
    return _term(word, starred=False)


def _term(literal: str, *, starred: bool) -> _Term:
    text, in_run = open_end(prepare(literal))
    if not is_indexable(text):
        return _Term(literal, None)
    begins = starred and ends_indexable(text.rstrip())
    quoted = text.replace('"', " ").strip()
    return _Term(literal, f'"{quoted}"{"*" if in_run or begins else ""}', begins)


def _operands(pieces: Sequence[_Term | _Operator]) -> tuple[int, int]:
    """Where the first operand stands, and where the last one ends."""
    at = [index for index, piece in enumerate(pieces) if isinstance(piece, _Term)]
    return (at[0], at[-1] + 1) if at else (0, 0)


def _literal(pieces: Iterable[_Term | _Operator]) -> list[_Term | _Operator]:
    return [_word(piece.word) if isinstance(piece, _Operator) else piece for piece in pieces]


def _groups(pieces: Iterable[_Term | _Operator]) -> list[_Group]:
    """The groups that OR joins.

    Of several operators in a row the last counts: `a AND NOT b` is `a NOT b`.
    """
    groups = [_Group([], [])]
    operator = "AND"
    for piece in pieces:
        if isinstance(piece, _Operator):
            operator = piece.word
            continue
        if operator == "OR":
            groups.append(_Group([], []))
        (groups[-1].refused if operator == "NOT" else groups[-1].wanted).append(piece)
        operator = "AND"
    return groups


def _expression(groups: Iterable[_Group]) -> str | None:
    """FTS5 for the groups, flat: it allows many operands side by side, but few levels (256)."""
    parts = []
    for group in groups:
        wanted, refused = _joined(group.wanted, "AND"), _joined(group.refused, "OR")
        if wanted:
            parts.append(f"({wanted} NOT {refused})" if refused else wanted)
    return " OR ".join(parts) or None


def _joined(terms: Iterable[_Term], operator: str) -> str | None:
    expressions = [term.expression for term in terms if term.expression]
    joined = f" {operator} ".join(expressions)
    return f"({joined})" if len(expressions) > 1 else joined or None
