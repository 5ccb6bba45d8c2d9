"""Six steps that move the controls themselves and say what to look at."""

from __future__ import annotations

from dataclasses import dataclass

from firstlight.tui.number import Range, Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step.

    Attributes:
        says: What to look at.
        sets: Controls it moves.
        tab: Tab it opens.
        pins: Whether it pins the setup first.
    """

    says: str
    sets: tuple[tuple[str, Value], ...] = ()
    tab: str = "explore"
    pins: bool = False


STEPS = (
    Step(says="Three designs at the same watts. ▸ marks the best of a row. n goes on, Esc ends."),
    Step(
        says="Context is now 64k: prefill grows, and the line under the chart says who wins where.",
        sets=(("context_tok", 65_536.0),),
    ),
    Step(
        says="Nobody discloses the reload time, so it is a range: the band shows what that leaves open.",
        sets=(("t_reload_s", Range(1e-6, 1e-4)),),
    ),
    Step(
        says="That was pinned as A; the GPU is now a B200. Dots show A, numbers show B.",
        sets=(("gpu", "b200-8x"), ("decode_silicon", "b200-8x")),
        pins=True,
    ),
    Step(says="Compare says what differs and what it does.", tab="compare"),
    Step(
        says="The map: green where optics win, the dotted line is break-even. 1 returns.", tab="map"
    ),
)
