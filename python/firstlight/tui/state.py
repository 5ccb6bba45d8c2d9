"""One frozen `Setup` in a history; its share string, its file, and where it is kept."""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote

from firstlight.errors import OutputError, ScenarioError, nearest
from firstlight.tui.field import BY_KEY, FIELDS, Field, Scale
from firstlight.tui.number import Range, Value

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

if TYPE_CHECKING:
    from firstlight.scenario import Scenario

_INDEX = {f.key: i for i, f in enumerate(FIELDS)}
_SHARE = "fl:1?"


@dataclass(frozen=True)
class Setup:
    """What every control says.

    Attributes:
        values: One value a field, in the order of `FIELDS`.
        name: Title of the scenario, may be "".
        base: Scenario that holds what no control shows; None is the shipped one.
    """

    values: tuple[Value, ...] = tuple(f.default for f in FIELDS)
    name: str = ""
    base: Scenario | None = None

    def __getitem__(self, key: str) -> Value:
        return self.values[_INDEX[key]]

    def number(self, key: str) -> float:
        """Return a field's number.

        Raises:
            ScenarioError: It is a word or a range.
        """
        value = self[key]
        if isinstance(value, (str, Range)):
            msg = f"{key} is {value!r}, where one number is needed"
            raise ScenarioError(msg)
        return value

    def replace(self, key: str, value: Value) -> Setup:
        """Return the setup with one field changed.

        Raises:
            ScenarioError: The value is not allowed.
        """
        checked = BY_KEY[key].checked(value)
        index = _INDEX[key]
        return replace(self, values=(*self.values[:index], checked, *self.values[index + 1 :]))

    def with_values(self, changes: Mapping[str, Value]) -> Setup:
        """Return the setup with several fields changed."""
        setup = self
        for key, value in changes.items():
            setup = setup.replace(key, value)
        return setup

    def changed(self, base: Setup | None = None) -> dict[str, Value]:
        """Return the fields that differ from another setup, by default from the defaults."""
        other = (base or DEFAULT).values
        return {
            f.key: mine
            for f, mine, theirs in zip(FIELDS, self.values, other, strict=True)
            if mine != theirs
        }

    @cached_property
    def ranges(self) -> tuple[str, ...]:
        """Keys of the fields that are ranges."""
        return tuple(
            f.key for f, v in zip(FIELDS, self.values, strict=True) if isinstance(v, Range)
        )

    def nominal(self) -> Setup:
        """Return the setup with each range at its middle on the slider's own scale."""
        middle: dict[str, Value] = {}
        for key in self.ranges:
            value, f = self[key], BY_KEY[key]
            if isinstance(value, Range):
                middle[key] = f.on_track(value)
        return self.with_values(middle)


DEFAULT = Setup()


# --------------------------------------------------------------------------------- share string


def defaults_digest() -> str:
    """Return four characters that change when a default does."""
    text = repr([(f.key, f.default) for f in FIELDS])
    return hashlib.sha256(text.encode()).hexdigest()[:4]


def share(setup: Setup) -> str:
    """Return a readable string that holds only what differs from the defaults."""
    pairs = [f"{key}={_word(value)}" for key, value in setup.changed().items()]
    return _SHARE + "&".join([*pairs, f"d={defaults_digest()}"])


def _word(value: Value) -> str:
    if isinstance(value, Range):
        return f"{_digits(value.lo)}..{_digits(value.hi)}"
    return quote(value) if isinstance(value, str) else _digits(value)


def _digits(value: float) -> str:
    """Return the shortest text of a number without "+", which a query string reads as a space."""
    return repr(value).removesuffix(".0").replace("e+", "e")


def parse_share(text: str, *, is_strict: bool = False) -> tuple[Setup, list[str]]:
    """Return the setup of a share string, and what in it could not be used.

    Args:
        text: As `share` writes it.
        is_strict: Refuse what could not be used, where nobody may see the warnings.

    Raises:
        ScenarioError: It is no share string of this version.
    """
    text = text.strip()
    if not text.startswith(_SHARE):
        msg = f"a share string begins with {_SHARE!r}, not with {text[:12]!r}"
        raise ScenarioError(msg)
    setup, warnings = DEFAULT, []
    for key, word in parse_qsl(text[len(_SHARE) :], keep_blank_values=True):
        if key == "d":
            if word != defaults_digest():
                warnings.append("the defaults changed since this string was made")
            continue
        if key not in BY_KEY:
            if is_strict:
                msg = f"share string: unknown field {key!r}{nearest(key, BY_KEY)}; allowed: {', '.join(BY_KEY)}"
                raise ScenarioError(msg)
            warnings.append(f"unknown field {key!r} was left out{nearest(key, BY_KEY)}")
            continue
        try:
            setup = setup.replace(key, _plain(BY_KEY[key], word))
        except ScenarioError as error:
            if is_strict:
                msg = f"share string: {error}"
                raise ScenarioError(msg) from None
            warnings.append(f"left at its default: {error}")
    return setup, warnings


def _plain(f: Field, word: str) -> Value:
    """Return a value written in SI units without suffix, or in a person's words."""
    try:
        if ".." in word and f.scale is not Scale.CHOICE:
            low, high = word.split("..")
            return f.checked(Range(*sorted((float(low), float(high)))))
        return f.checked(float(word))
    except ValueError:
        return f.parse(word)


def write_whole(path: Path, text: str) -> None:
    """Write a file so that it is there whole or not at all.

    Raises:
        OutputError: It cannot be written; nothing is left behind.
    """
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        msg = f"{path}: cannot be written: {error.strerror}"
        raise OutputError(msg) from None
    draft = Path(name)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        draft.replace(path)
    except OSError as error:
        draft.unlink(missing_ok=True)
        msg = f"{path}: cannot be written: {error.strerror}"
        raise OutputError(msg) from None


def autosave_path(environment: Mapping[str, str] = os.environ) -> Path:
    """Return where the last setup is kept."""
    home = environment.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(home) / "firstlight" / "last.toml"


# -------------------------------------------------------------------------------------- history


@dataclass(slots=True)
class History:
    """Every setup there was, with a place in it.

    Edits of one field that follow each other within `MERGE_S`, or within one drag, are one step.

    Attributes:
        clock: Seconds, for merging.
    """

    first: Setup
    clock: Callable[[], float]
    _setups: list[Setup] = field(init=False)
    _cursor: int = field(init=False, default=0)
    _last: tuple[str, float] = field(init=False, default=("", float("-inf")))

    MERGE_S = 0.5

    def __post_init__(self) -> None:
        self._setups = [self.first]

    @property
    def now(self) -> Setup:
        """The setup at the cursor."""
        return self._setups[self._cursor]

    def push(self, setup: Setup, *, key: str = "", is_drag: bool = False) -> None:
        """Add a setup and forget what was undone.

        Args:
            setup: The new one.
            key: Field that changed, or "" for a step of its own.
            is_drag: Whether a drag that already began goes on.
        """
        if setup == self.now:
            return
        time, (last_key, last_time) = self.clock(), self._last
        same = bool(key) and key == last_key and self._cursor > 0
        same = same and self._cursor == len(self._setups) - 1
        if same and (is_drag or time - last_time < self.MERGE_S):
            self._setups[self._cursor] = setup
        else:
            self._setups[self._cursor + 1 :] = [setup]
            self._cursor += 1
        self._last = (key, time)

    def close_step(self) -> None:
        """End merging, as when the mouse button goes up."""
        self._last = ("", float("-inf"))

    def undo(self) -> bool:
        """Go one step back; False at the beginning."""
        self.close_step()
        moved = self._cursor > 0
        self._cursor -= moved
        return moved

    def redo(self) -> bool:
        """Go one step forward; False at the end."""
        self.close_step()
        moved = self._cursor < len(self._setups) - 1
        self._cursor += moved
        return moved
