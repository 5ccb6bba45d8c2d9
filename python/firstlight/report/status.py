"""How strongly a printed number is founded: one letter beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from firstlight.catalog import Status, weakest

if TYPE_CHECKING:
    from firstlight.evaluate.answer import Comparison, Provenance

LETTERS = {str(status): str(status)[0] for status in Status}
LEGEND = "  ".join(f"{letter} {status}" for status, letter in LETTERS.items())


class Letters:
    """Looks up the letter of a number of an answer.

    Args:
        comparison: The answer.
    """

    def __init__(self, comparison: Comparison) -> None:
        self._facts = {fact.path: fact for fact in comparison.provenance}
        self._of_all = LETTERS.get(comparison.status, "?")

    def fact(self, path: str) -> Provenance | None:
        """Return where the number at a path comes from; None when it is not recorded."""
        return self._facts.get(path)

    def of(self, path: str) -> str:
        """Return the letter of an input or result by path; that of the answer when unknown."""
        fact = self._facts.get(path)
        return LETTERS.get(fact.status, "?") if fact else self._of_all

    def of_design(self, name: str) -> str:
        """Return the letter of what was simulated of a design: the weakest of its results."""
        start = f"designs.{name}."
        found = [fact.status for path, fact in self._facts.items() if path.startswith(start)]
        return LETTERS.get(str(weakest(*found)), "?") if found else self._of_all

    @property
    def of_all(self) -> str:
        """The letter of what rests on every design."""
        return self._of_all
