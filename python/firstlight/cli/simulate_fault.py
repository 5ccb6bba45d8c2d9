"""`--fault` of `firstlight simulate`: what breaks in the simulated cell, from a line of words."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from firstlight.errors import ScenarioError, UnitError, nearest
from firstlight.units import parse

if TYPE_CHECKING:
    from firstlight.evaluate.cell import Cell
    from firstlight.schedule import Fault, Fleet

PS_PER_S = 10**12
HELP = (
    'What breaks, as often as needed: "t=600s server=0 down=300s" (repaired after 300 s), '
    '"t=600s server=0 slow=1.33 for=300s" (steps take longer: one engine of four is gone), '
    '"t=600s link=0 down=20s", "t=600s link=0 slow=4 for=60s" (the link into decode replica 0).'
)
_ALLOWED = ("t", "server", "replica", "link", "down", "slow", "for")


class _Said(NamedTuple):
    """A line of words, checked."""

    target: str
    number: int
    from_s: float
    lasts_s: float
    slow: float | None


def faults(lines: tuple[str, ...], *, cell: Cell, fleet: Fleet) -> tuple[Fault, ...]:
    """Return the faults of a cell: a server's are those of each of its replicas.

    Args:
        lines: One fault each, as in `HELP`.
        cell: The servers.
        fleet: Their replicas, as the scheduler numbers them.

    Raises:
        ScenarioError: A line is malformed, or names what the cell has not got.
    """
    return tuple(fault for line in lines for fault in _faults(line, cell=cell, fleet=fleet))


def _faults(line: str, *, cell: Cell, fleet: Fleet) -> list[Fault]:
    from firstlight.schedule import Fault, slower_table

    said = _read(line)
    tables = [pool.table for pool in fleet.pools for _ in range(pool.replicas)]
    from_ps = round(said.from_s * PS_PER_S)
    until_ps = round((said.from_s + said.lasts_s) * PS_PER_S)
    done = []
    for replica in _replicas(line, said, cell=cell, fleet=fleet):
        if said.target == "link":
            kind, slower = ("link-down", 1.0) if said.slow is None else ("link-slow", said.slow)
            fault = Fault(
                kind="link-down" if kind == "link-down" else "link-slow",
                replica=replica,
                from_ps=from_ps,
                until_ps=until_ps,
                slower=slower,
            )
        elif said.slow is None:
            fault = Fault(kind="down", replica=replica, from_ps=from_ps, until_ps=until_ps)
        else:
            fault = Fault(
                kind="slow",
                replica=replica,
                from_ps=from_ps,
                until_ps=until_ps,
                table=slower_table(tables[replica], factor=said.slow),
            )
        done.append(fault)
    return done


def _read(line: str) -> _Said:
    words = dict[str, str]()
    for word in line.replace(",", " ").split():
        key, equals, value = word.partition("=")
        if not equals or key not in _ALLOWED or key in words:
            raise ScenarioError(
                f"--fault {line!r}: {word!r} is not allowed; each once: "
                f"{', '.join(f'{name}=…' for name in _ALLOWED)}{nearest(key, _ALLOWED)}"
            )
        words[key] = value
    targets = [key for key in ("server", "replica", "link") if key in words]
    if "t" not in words or len(targets) != 1 or ("down" in words) == ("slow" in words):
        raise ScenarioError(
            f"--fault {line!r}: allowed: t=…, one of server=… replica=… link=…, and one of "
            "down=… and slow=… for=…"
        )
    if ("slow" in words) != ("for" in words):
        raise ScenarioError(f"--fault {line!r}: allowed: slow=FACTOR and for=DURATION together")
    number = words[targets[0]]
    if not number.isdecimal():
        raise ScenarioError(f"--fault {line!r}: {targets[0]}={number} is not allowed; 0, 1, 2, …")
    return _Said(
        target=targets[0],
        number=int(number),
        from_s=_duration(line, words["t"], least=0.0),
        lasts_s=_duration(line, words.get("for", words.get("down", "")), least=1e-9),
        slow=_factor(line, words["slow"]) if "slow" in words else None,
    )


def _duration(line: str, text: str, *, least: float) -> float:
    try:
        value = parse(text, "s")
    except UnitError as error:
        raise ScenarioError(f"--fault {line!r}: {error}") from None
    if not least <= value <= 1e6:
        raise ScenarioError(f"--fault {line!r}: {text} is not allowed; up to 1e6 s")
    return value


def _factor(line: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1.0 <= value <= 1000.0:
        raise ScenarioError(f"--fault {line!r}: slow={text} is not allowed; 1 to 1000")
    return value


def _replicas(line: str, said: _Said, *, cell: Cell, fleet: Fleet) -> range:
    """Return the replicas that a fault hits."""
    owned = []
    first = 0
    for group in cell.groups:
        for _ in range(group.count):
            owned.append(range(first, first + group.replicas))
            first += group.replicas
    if said.target == "replica":
        owned = [range(i, i + 1) for i in range(first)]
    elif said.target == "link":
        owned, first = [], 0
        for pool in fleet.pools:
            if pool.role == "decode":
                owned += [range(first + i, first + i + 1) for i in range(pool.replicas)]
            first += pool.replicas
    if said.number >= len(owned):
        has = f"0 to {len(owned) - 1}" if owned else "none: nothing is sent between pools"
        raise ScenarioError(
            f"--fault {line!r}: {said.target}={said.number} is not allowed; this cell has {has}"
        )
    return owned[said.number]
