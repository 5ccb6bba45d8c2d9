"""Linear layers through the photon-level emulator, with ranges chosen as models need them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from firstlight.optics import Engine


@dataclass(frozen=True, slots=True, kw_only=True)
class OpticalEngine:
    """An engine of the emulator under a name that goes into the record of every result.

    Attributes:
        name: The preset, and whatever was changed on it.
        engine: The emulator's engine.
    """

    name: str
    engine: Engine

    def changed(self, changes: Mapping[str, Any]) -> OpticalEngine:
        """Return the engine with some parameters replaced."""
        if not changes:
            return self
        words = ", ".join(f"{key}={value}" for key, value in sorted(changes.items()))
        return replace(self, name=f"{self.name} ({words})", engine=self.engine.replace(**changes))


def open_engine(preset: str, changes: Mapping[str, Any] | None = None) -> OpticalEngine:
    """Return the engine of a preset with some parameters replaced."""
    from firstlight.optics import Engine

    return OpticalEngine(name=preset, engine=Engine.preset(preset)).changed(changes or {})
