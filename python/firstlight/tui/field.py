"""The controls: what each may say, how far it reaches, what it means and where it comes from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from firstlight.errors import ScenarioError, nearest
from firstlight.tui.number import Range, Value, parse_value, setting

AUTO = "auto"


class Scale(StrEnum):
    """How a slider's track is divided."""

    LOG = "log"
    LINEAR = "linear"
    INTEGER = "integer"
    CHOICE = "choice"


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One control.

    Attributes:
        key: Name, unit at its end.
        label: Name on the screen, at most nine cells.
        group: Heading it stands under.
        path: Dotted name for `Scenario.replace`, "" where the scenario needs more than one change.
        meaning: One or two sentences for help.
        scale: How the track is divided.
        unit: Unit of the value for `number.written`.
        lo: Smallest value.
        hi: Largest value.
        default: Value at the start.
        choices: Allowed words of a choice, each with its label.
        has_auto: Whether "auto" is allowed beside numbers.
        takes_file: Whether a choice may also be a file that exists.
        usual: Number that stands for "auto" on the track and on axes.
        status: Provenance of the default: measured … assumed, or "set" where it is the question.
        source: Where the default comes from.
    """

    key: str
    label: str
    group: str
    path: str
    meaning: str
    scale: Scale
    unit: str = ""
    lo: float = 0.0
    hi: float = 1.0
    default: Value
    choices: tuple[tuple[str, str], ...] = ()
    has_auto: bool = False
    takes_file: bool = False
    usual: float = 0.0
    status: str = "set"
    source: str = "part of the question; choose your own"

    STEPS = 120

    def position(self, value: float) -> float:
        """Return where a number lies on the track, 0 to 1."""
        if self.scale is Scale.LOG:
            share = math.log(max(value, self.lo) / self.lo) / math.log(self.hi / self.lo)
        else:
            share = (value - self.lo) / (self.hi - self.lo)
        return min(max(share, 0.0), 1.0)

    def at(self, position: float) -> float:
        """Return the number at a place on the track, rounded to what a hand can mean."""
        share = min(max(position, 0.0), 1.0)
        if self.scale is Scale.LOG:
            value = self.lo * (self.hi / self.lo) ** share
            digits = 2 - math.floor(math.log10(value))
            value = round(value, digits)
        else:
            value = self.lo + (self.hi - self.lo) * share
            value = round(value) if self.scale is Scale.INTEGER else round(value, 6)
        return min(max(float(value), self.lo), self.hi)

    def nudged(self, value: Value, steps: int) -> Value:
        """Return the value moved by keyboard steps; a choice moves to its neighbour.

        Args:
            value: What the control says; a range moves as a whole.
            steps: Steps to the right; negative to the left.
        """
        if self.scale is Scale.CHOICE:
            words = [word for word, _ in self.choices]
            index = words.index(value) if value in words else 0
            return words[(index + (1 if steps > 0 else -1)) % len(words)]
        if isinstance(value, str):
            value = self.usual
        if isinstance(value, Range):
            moved = [self._moved(end, steps) for end in (value.lo, value.hi)]
            return Range(*moved) if moved[0] < moved[1] else value
        return self._moved(value, steps)

    def _moved(self, value: float, steps: int) -> float:
        if self.scale is Scale.INTEGER and self.hi - self.lo <= self.STEPS:
            return min(max(round(value) + steps, self.lo), self.hi)
        place = self.position(value) + steps / self.STEPS
        moved = self.at(place)
        if moved == value and 0 < place < 1:
            moved = self.at(place + steps / self.STEPS)
        return moved

    def parse(self, text: str) -> Value:
        """Return the value of typed text.

        Args:
            text: A number, a range, "auto" or a choice, as the control allows.

        Raises:
            ScenarioError: The text means nothing here or lies outside the bounds.
        """
        text = text.strip()
        if self.scale is Scale.CHOICE:
            return self._choice(text)
        if text.lower() == AUTO:
            if self.has_auto:
                return AUTO
            msg = f"{self.label}: 'auto' is not allowed here; write {self.allowed()}"
            raise ScenarioError(msg)
        try:
            value = parse_value(text, self.unit)
        except ScenarioError as error:
            msg = f"{self.label}: {error}"
            raise ScenarioError(msg) from None
        if self.unit == "%" and "%" not in text:
            # 40 means 40 %, 0.4 means 40 %: nobody writes 0.4 % into a share without its sign.
            value = _as_fraction(value, text)
        return self.checked(value)

    def checked(self, value: Value) -> Value:
        """Return the value when it is allowed.

        Raises:
            ScenarioError: It is not; the message says what is.
        """
        if self.scale is Scale.CHOICE:
            return self._choice(str(value))
        if isinstance(value, str):
            if value == AUTO and self.has_auto:
                return value
            msg = f"{self.label}: {value!r} is not a number; allowed is {self.allowed()}"
            raise ScenarioError(msg)
        ends = (value.lo, value.hi) if isinstance(value, Range) else (value,)
        for end in ends:
            if not (math.isfinite(end) and self.lo <= end <= self.hi):
                msg = f"{self.label} {setting(end, self.unit)} is outside; allowed is {self.allowed()}"
                raise ScenarioError(msg)
        if self.scale is Scale.INTEGER:
            whole = [float(round(end)) for end in ends]
            return Range(*whole) if len(whole) == 2 and whole[0] < whole[1] else whole[0]
        return value

    def _choice(self, text: str) -> str:
        words = [word for word, _ in self.choices]
        if text in words:
            return text
        if self.takes_file and is_path(text):
            path = Path(text).expanduser()
            if path.is_file():
                return str(path.resolve())
            msg = f"{self.label}: there is no file {text}"
            raise ScenarioError(msg)
        lowered = text.lower()
        found = [w for w, name in self.choices if lowered in w.lower() or lowered in name.lower()]
        if text and found:
            return found[0]
        msg = (
            f"{self.label}: {text!r} is unknown{nearest(text, words)}; allowed: {', '.join(words)}"
        )
        raise ScenarioError(msg)

    def allowed(self) -> str:
        """Return the allowed values in words."""
        if self.scale is Scale.CHOICE:
            words = ", ".join(word for word, _ in self.choices)
            return f"{words}, or a trace file" if self.takes_file else words
        span = f"{setting(self.lo, self.unit)} to {setting(self.hi, self.unit)}"
        return span + (" or auto" if self.has_auto else "")

    def on_track(self, value: Value) -> float:
        """Return the number that stands for a value where one number is needed."""
        if isinstance(value, Range):
            return self.at((self.position(value.lo) + self.position(value.hi)) / 2)
        return self.usual if isinstance(value, str) else value

    def shown(self, value: Value) -> str:
        """Return what the control shows."""
        if self.scale is Scale.CHOICE:
            name = dict(self.choices).get(str(value), str(value))
            return Path(name).name if self.takes_file and is_path(name) else name
        return setting(value, self.unit)


def is_path(text: str) -> bool:
    """Return whether a word means a file: it has a folder or an ending."""
    return "/" in text or Path(text).suffix in (
        ".csv",
        ".jsonl",
        ".json",
        ".parquet",
        ".zst",
        ".gz",
    )


def _as_fraction(value: float | Range, text: str) -> float | Range:
    if isinstance(value, Range):
        above = value.hi * 100 > 1
        return Range(value.lo, value.hi) if above else Range(value.lo * 100, value.hi * 100)
    typed = value * 100
    return typed if typed < 1 or (typed == 1 and "." in text) else value


WORKLOAD, SILICON, OPTICS, SERVICE = "WORKLOAD", "POWER & SILICON", "OPTICS", "PRICE & SERVICE"
GROUPS = (WORKLOAD, SILICON, OPTICS, SERVICE)

_GPUS = (
    ("h100-sxm-8x", "H100 SXM"), ("h200-sxm-8x", "H200 SXM"), ("b200-8x", "B200"),
    ("b300-8x", "B300"), ("mi300x-8x", "MI300X"), ("mi325x-8x", "MI325X"),
    ("mi355x-8x", "MI355X"), ("a100-sxm-8x", "A100 SXM"), ("gb200-nvl72-72x", "GB200 NVL72"),
    ("gb300-nvl72-72x", "GB300 NVL72"), ("rtx-pro-6000-8x", "RTX Pro 6000"), ("l40s-8x", "L40S"),
)  # fmt: skip
_OPTICAL = (
    ("iris-nova-optimistic", "Iris optimistic"), ("iris-nova-conservative", "Iris conservative"),
    ("iris-nova-2048", "Iris 2048"), ("tetra-2029-1024", "Tetra 1024"),
    ("tetra-2029-target", "Tetra target"), ("lab-aoc-48", "lab AOC 48"),
)  # fmt: skip
_MODELS = (
    ("llama-3.1-8b", "Llama 3.1 8B"), ("llama-3.1-70b", "Llama 3.1 70B"),
    ("llama-3.3-70b", "Llama 3.3 70B"), ("llama-3.1-405b", "Llama 3.1 405B"),
    ("qwen3-8b", "Qwen3 8B"), ("qwen3-32b", "Qwen3 32B"), ("qwen3-30b-a3b", "Qwen3 30B-A3B"),
    ("qwen3-235b-a22b", "Qwen3 235B-A22B"), ("gemma-3-27b", "Gemma 3 27B"),
    ("mixtral-8x7b", "Mixtral 8x7B"), ("gpt-oss-20b", "gpt-oss 20B"),
    ("gpt-oss-120b", "gpt-oss 120B"), ("deepseek-v3", "DeepSeek V3"), ("deepseek-r1", "DeepSeek R1"),
)  # fmt: skip
FROM_FILE = "from-file"
_UNDISCLOSED = "not disclosed by any vendor; give it a range"

FIELDS: tuple[Field, ...] = (
    Field(
        key="traffic", label="traffic", group=WORKLOAD, path="", scale=Scale.CHOICE,
        takes_file=True,
        meaning="Which requests arrive: their lengths, their bursts, what they share. Enter and the "
        "path of a trace file take your own.",
        default="azure-2023-conv", status="measured", source="Azure public dataset, 2023, one hour",
        choices=(("azure-2023-conv", "Azure chat"), ("chat", "chat"), ("rag", "RAG"),
                 ("agentic", "agentic"), ("code", "code"),
                 ("reasoning", "reasoning"), (FROM_FILE, "from the file")),
    ),
    Field(
        key="context_tok", label="context", group=WORKLOAD, path="workload.context_tok",
        scale=Scale.LOG, unit="tok", lo=1_000, hi=1_000_000, default=AUTO, has_auto=True,
        usual=1_155.0, status="measured", source="auto: as the traffic has it",
        meaning="Mean prompt length. Prefill work grows with it, attention with its square.",
    ),
    Field(
        key="output_tok", label="output", group=WORKLOAD, path="workload.output_tok",
        scale=Scale.LOG, unit="tok", lo=1, hi=32_768, default=AUTO, has_auto=True, usual=211.0,
        status="measured", source="auto: as the traffic has it",
        meaning="Mean answer length. Each token is one decode step, which optics do not speed up.",
    ),
    Field(
        key="cached_frac", label="cached", group=WORKLOAD, path="workload.cached_frac",
        scale=Scale.LINEAR, unit="%", lo=0.0, hi=0.99, default=0.5, status="estimate",
        meaning="Share of prompt tokens whose KV is already there and is not computed again.",
        source="production traces report 54 to 62 %; the default is below them",
    ),
    Field(
        key="power_w", label="power", group=SILICON, path="facility.power_w", scale=Scale.LOG,
        unit="W", lo=1e4, hi=1e8, default=1e6,
        meaning="The watts there are, at the facility. Every design gets the same.",
    ),
    Field(
        key="model", label="model", group=SILICON, path="model", scale=Scale.CHOICE,
        meaning="Which model is served.", default="llama-3.1-70b",
        choices=(*_MODELS, (FROM_FILE, "from the file")),
        status="datasheet", source="published configuration files",
    ),
    Field(
        key="weights", label="format", group=SILICON, path="precision.weights",
        scale=Scale.CHOICE, default="fp8", status="assumed", source="what the hardware is sold for",
        choices=(("bf16", "BF16"), ("fp8", "FP8"), ("nvfp4", "NVFP4"), ("int8", "INT8"),
                 ("fp16", "FP16")),
        meaning="Number format of weights on silicon. Optics use the mask bits instead.",
    ),
    Field(
        key="gpu", label="GPU", group=SILICON, path="", scale=Scale.CHOICE,
        meaning="Server that does prefill in the two designs without optics.",
        default="h100-sxm-8x", choices=(*_GPUS, (FROM_FILE, "from the file")),
        status="datasheet", source="catalog",
    ),
    Field(
        key="decode_silicon", label="decode on", group=SILICON, path="",
        scale=Scale.CHOICE, default="h100-sxm-8x", status="datasheet", source="catalog",
        choices=(*_GPUS, (FROM_FILE, "from the file")),
        meaning="Server that does decode, the same in every design so that only prefill differs.",
    ),
    Field(
        key="optical_server", label="engine", group=OPTICS, path="", scale=Scale.CHOICE,
        default="iris-nova-optimistic", choices=(*_OPTICAL, (FROM_FILE, "from the file")),
        status="assumed", source="catalog: engines with every undisclosed figure marked",
        meaning="Optical server. Choosing one sets the sliders below to what is known of it.",
    ),
    Field(
        key="optical_share_frac", label="optical", group=OPTICS, path="",
        scale=Scale.LINEAR, unit="%", lo=0.0, hi=1.0, default=AUTO, has_auto=True, usual=0.4,
        meaning="Share of the facility's watts that feeds optical prefill; auto finds the best.",
    ),
    Field(
        key="engines", label="engines", group=OPTICS, path="assumptions.engines",
        scale=Scale.INTEGER, unit="", lo=1, hi=128, default=4.0, status="assumed",
        source=_UNDISCLOSED, meaning="Optical engines in one server.",
    ),
    Field(
        key="t_reload_s", label="reload", group=OPTICS, path="assumptions.t_reload_s",
        scale=Scale.LOG, unit="s", lo=1e-8, hi=2e-2, default=1e-5, status="assumed",
        source=_UNDISCLOSED,
        meaning="Time to put new weights on the mask. It decides how many tokens must share a pass.",
    ),
    Field(
        key="f_cycle_hz", label="clock", group=OPTICS, path="assumptions.f_cycle_hz",
        scale=Scale.LOG, unit="Hz", lo=1e6, hi=2e10, default=1e9, status="assumed",
        source=_UNDISCLOSED,
        meaning="Vectors that one engine sends through the light path each second.",
    ),
    Field(
        key="mask_bits", label="mask bits", group=OPTICS, path="assumptions.mask_bits",
        scale=Scale.INTEGER, unit="bit", lo=1, hi=15, default=4.0, status="vendor",
        source=_UNDISCLOSED,
        meaning="Bits of one weight on the mask. More bits than the mask has cost more passes.",
    ),
    Field(
        key="target_snr_db", label="SNR", group=OPTICS, path="assumptions.target_snr_db",
        scale=Scale.LINEAR, unit="dB", lo=5.0, hi=60.0, default=30.0, status="assumed",
        source=_UNDISCLOSED,
        meaning="Signal to noise at a detector. Laser power grows with it.",
    ),
    Field(
        key="attention_op_per_s_per_engine", label="attention", group=OPTICS,
        path="assumptions.attention_op_per_s_per_engine", scale=Scale.LOG, unit="op/s",
        lo=1e12, hi=1e16, default=2.5e14, status="assumed", source=_UNDISCLOSED,
        meaning="Digital attention beside each optical engine. Attention grows with the square of "
        "the context and stays on silicon, so this is what long prompts run into.",
    ),
    Field(
        key="price_ratio", label="price", group=SERVICE, path="assumptions.optical_price_ratio",
        scale=Scale.LOG, unit="×", lo=0.1, hi=10.0, default=1.0, status="assumed",
        source="no public price; equal $ per provisioned watt, 0.3 to 3 times",
        meaning="Price of an optical server per watt over that of a GPU server.",
    ),
    Field(
        key="electricity_usd_per_kwh", label="$/kWh", group=SERVICE,
        path="facility.electricity_usd_per_kwh", scale=Scale.LINEAR, unit="usd", lo=0.005, hi=0.5,
        default=0.08, status="estimate", source="US planning value; states 0.068 to 0.163",
        meaning="Price of energy at the meter.",
    ),
    Field(
        key="pue", label="PUE", group=SERVICE, path="facility.pue", scale=Scale.LINEAR, unit="",
        lo=1.0, hi=2.0, default=1.2, status="estimate", source="operators' reports, 1.04 to 1.6",
        meaning="Facility energy over IT energy.",
    ),
    Field(
        key="ttft_s", label="SLO TTFT", group=SERVICE, path="slo.ttft_s", scale=Scale.LOG, unit="s",
        lo=0.05, hi=60.0, default=2.0, status="estimate", source="the server limit of MLPerf",
        meaning="Longest wait for the first token that still counts.",
    ),
    Field(
        key="tpot_s", label="SLO TPOT", group=SERVICE, path="slo.tpot_s", scale=Scale.LOG, unit="s",
        lo=0.005, hi=1.0, default=0.05, status="estimate", source="20 tokens/s, faster than reading",
        meaning="Longest time per further token that still counts.",
    ),
)  # fmt: skip
"""Every control, in the order of the screen."""

BY_KEY = {field.key: field for field in FIELDS}
ENGINE_KEYS = tuple(
    f.key for f in FIELDS if f.group == OPTICS and f.path.startswith("assumptions.")
)
"""Fields that an optical server has of its own; choosing another server sets them."""
NUMERIC = tuple(field for field in FIELDS if field.scale is not Scale.CHOICE)
"""Fields that can be an axis of the chart or the map."""


def field(key: str) -> Field:
    """Return a control by its key or label.

    Raises:
        ScenarioError: There is none of that name.
    """
    found = BY_KEY.get(key) or next((f for f in FIELDS if f.label.lower() == key.lower()), None)
    found = found or next((f for f in FIELDS if f.key.startswith(key.lower())), None)
    if found is None:
        names = [*BY_KEY, *(f.label for f in FIELDS)]
        msg = f"no control is called {key!r}{nearest(key, names)}; there are: {', '.join(BY_KEY)}"
        raise ScenarioError(msg)
    return found
