"""Nondeterministic finite automata for regular expressions; all active states advance together, in time linear in the text.

Among several matches the one that a backtracking matcher would find first is returned; the order of a state's epsilon
transitions determines it (Thompson simulation with priorities, as in RE2's Pike VM).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from mgx_core.errors import ParameterError

__all__ = ["Automaton", "Test"]

MAX_STATES: Final = 20_000
MAX_CACHE: Final = 128  # maximum cached transitions of a set of states
MAX_ROWS: Final = 256  # maximum cached sets of states

Test: TypeAlias = Callable[[str], bool]


class _Row(dict[str, "_Row"]):
    """A set of states that are active together, and what each character makes of it."""

    __slots__ = ("states",)

    def __init__(self, states: frozenset[int]) -> None:
        super().__init__()
        self.states = states


class Automaton:
    """States with a character test or with epsilon transitions, possibly conditional on an anchor; state 0 accepts."""

    __slots__ = ("_anchored", "_first", "_rows", "moves", "start", "tests")

    def __init__(self) -> None:
        self.tests: list[tuple[Test, int] | None] = []  # character transition of each state
        self.moves: list[list[tuple[str, int]]] = []  # epsilon transitions: (anchor or "", target)
        self.start = 0
        self._anchored = False
        self._rows: dict[frozenset[int], _Row] = {}
        self._first: _Row | None = None  # made by the first match

    def state(self) -> int:
        if len(self.tests) >= MAX_STATES:
            raise ParameterError(f"the pattern needs more than {MAX_STATES} states")
        self.tests.append(None)
        self.moves.append([])
        return len(self.tests) - 1

    def copy(self, begin: int, end: int) -> int:
        """Appends a copy of the states begin..end-1, which must not be linked from outside; returns the copy's offset."""
        shift = len(self.tests) - begin
        for i in range(begin, end):
            made = self.state()
            move = self.tests[i]
            self.tests[made] = None if move is None else (move[0], move[1] + shift)
            self.moves[made] = [(anchor, target + shift) for anchor, target in self.moves[i]]
        return shift

    def link(self, source: int, target: int, anchor: str = "") -> None:
        self.moves[source].append((anchor, target))
        self._anchored = self._anchored or bool(anchor)

    def fullmatch(self, text: str) -> bool:
        """Returns True if the whole text matches."""
        if not self._anchored:
            return self._fullmatch_by_rows(text)
        current = self._closed({self.start}, "", text[:1])
        for i, character in enumerate(text):
            current = self._step(current, character, text[i + 1 : i + 2])
            if not current:
                return False
        return 0 in current

    def _fullmatch_by_rows(self, text: str) -> bool:
        """Matches with a deterministic automaton, whose transitions are made when they are first needed."""
        if self._first is None:
            self._first = self._row(self._closed({self.start}, "", ""))
        row = self._first
        for character in text:
            following = row.get(character)
            if following is None:
                following = self._row(self._step(row.states, character, ""))
                if len(row) < MAX_CACHE:
                    row[character] = following
            row = following
            if not row.states:
                return False
        return 0 in row.states

    def _row(self, states: frozenset[int]) -> _Row:
        found = self._rows.get(states)
        if found is None:
            if len(self._rows) >= MAX_ROWS:
                self._rows.clear()
            found = self._rows[states] = _Row(states)
        return found

    def find_all(self, text: str) -> list[tuple[int, int]]:
        """Returns (begin, end) of all nonempty, nonoverlapping matches, as a backtracking matcher finds them."""
        found: list[tuple[int, int]] = []
        threads: list[tuple[int, int]] = []  # (state, start of its match), by descending priority
        best: tuple[int, int] | None = None
        at = 0
        while at <= len(text):
            before, after = text[at - 1 : at] if at else "", text[at : at + 1]
            seeds = threads if best is not None else [*threads, (self.start, at)]
            threads = []
            seen: set[int] = set()
            for state, begin in seeds:
                for reached in self._ordered(state, before, after, seen):
                    threads.append((reached, begin))
                if 0 in seen:  # later states have lower priority than this match
                    if at > begin:
                        best = begin, at
                        break
                    seen.discard(0)
            threads = [
                (move[1], begin)
                for s, begin in threads
                if (move := self.tests[s]) is not None and after and move[0](after)
            ]
            at += 1
            if best is not None and not threads:
                found.append(best)
                at, best = best[1], None
        return found

    def _ordered(self, state: int, before: str, after: str, seen: set[int]) -> list[int]:
        """Returns the epsilon closure by descending priority, cut after the accepting state."""
        out, todo = [], [state]
        while todo:
            s = todo.pop()
            if s in seen:
                continue
            seen.add(s)
            out.append(s)
            if s == 0:
                break
            todo.extend(
                target for anchor, target in reversed(self.moves[s]) if not anchor or _holds(anchor, before, after)
            )
        return out

    def _step(self, states: frozenset[int], character: str, following: str) -> frozenset[int]:
        reached = {move[1] for s in states if (move := self.tests[s]) is not None and move[0](character)}
        return self._closed(reached, character, following)

    def _closed(self, states: set[int], before: str, after: str) -> frozenset[int]:
        seen, todo = set(states), list(states)
        while todo:
            for anchor, target in self.moves[todo.pop()]:
                if target not in seen and (not anchor or _holds(anchor, before, after)):
                    seen.add(target)
                    todo.append(target)
        return frozenset(seen)


def _holds(anchor: str, before: str, after: str) -> bool:
    match anchor:
        case "begin":
            return not before
        case "end":
            return not after
        case "line begin":
            return before in ("", "\n")
        case "line end":
            return after in ("", "\n")
    return (_is_word(before) != _is_word(after)) == (anchor == "boundary")


def _is_word(c: str) -> bool:
    return c != "" and c.isascii() and (c.isalnum() or c == "_")
