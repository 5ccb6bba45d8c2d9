"""Claims in words: the table of the terminal, one claim in full, and docs/claims.md."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from firstlight.units import format_si

if TYPE_CHECKING:
    from collections.abc import Iterator

    from firstlight.claims.check import Checked, HoldsWhen, Report, Verdict

WIDTH = 80
_SI = frozenset({"W", "s", "Hz", "op/J", "op", "J"})
_SHORT = {
    "holds": "holds",
    "holds here": "here only",
    "holds on its best reading": "best reading",
    "does not hold": "does not hold",
    "not testable here": "not testable",
}


def amount(value: float, unit: str) -> str:
    """Return a number of a claim as people read it."""
    if unit in {"op/J", "op"}:
        scaled = format_si(value, "op/J" if unit == "op/J" else "1", digits=3)
        return scaled if unit == "op/J" else f"{value:.3g}"
    if unit in _SI:
        return format_si(value, unit, digits=3)
    if unit == "1":
        return f"{value:.3g}"
    if unit in {"dB", "tok/s"}:
        return f"{value:.3g} {unit}"
    if unit == "tok":
        return f"{value:,.0f} tok"
    return f"{value:.3g} {unit}"


def _cell(verdict: Verdict) -> str:
    if verdict.value is None:
        return "– no"
    return f"{amount(verdict.value, verdict.scale.unit)} {'yes' if verdict.met else 'no'}"


def when_words(when: HoldsWhen) -> str:
    """Return one boundary in words, with the distance from today."""
    reading = " (best reading)" if when.reading == "best" else ""
    today = amount(when.today, when.unit)
    if when.value is None:
        low, high = (amount(end, when.unit) for end in when.searched)
        over = f" from {low} to {high}" if when.field else ""
        word = "at every value" if when.holds == "everywhere" else "at no value"
        return f"{when.name}{reading}: {word}{over}; today {today}"
    far = f"{when.distance_ratio:.3g}× away" if when.distance_ratio else "?"
    side = "met" if when.is_met else "not met"
    about, uneven = ("", "") if when.is_even else ("about ", ", not at every value")
    return (
        f"{when.name}{reading}: {when.holds} {about}{amount(when.value, when.unit)}{uneven}; "
        f"today {today}, {side}, {far}"
    )


def table(report: Report) -> str:
    """Return all claims in 80 columns, each with its scale and its nearest boundary."""
    lines = [f"Published claims on: {report.scenario}", ""]
    lines.append(f"{'claim':24}{'claimed':>11}{'here':>14}{'best reading':>15}  verdict")
    for checked in report.claims:
        claim = checked.claim
        goal = f"{claim.sign} {amount(claim.target, claim.unit)}"
        lines.append(
            f"{claim.id:24}{goal:>11}{_cell(checked.here):>14}{_cell(checked.favourable):>15}"
            f"  {_SHORT[checked.verdict]}"
        )
        lines += _wrapped(f"{checked.here.scale.counts}", indent=2)
        near = _nearest(checked)
        if near is not None:
            lines += _wrapped(f"holds when {when_words(near)}", indent=2)
    lines += ["", *_beside(report)]
    return "\n".join(lines)


def _nearest(checked: Checked) -> HoldsWhen | None:
    solved = [one for one in checked.holds_when if one.value is not None]
    return min(solved, key=lambda one: one.distance_ratio or float("inf"), default=None)


def _wrapped(text: str, *, indent: int) -> list[str]:
    margin = " " * indent
    return textwrap.wrap(
        text, WIDTH, initial_indent=margin, subsequent_indent=margin, break_on_hyphens=False
    )


def _beside(report: Report) -> Iterator[str]:
    yield "100 TOPS/W (2029 target, engine) over a board of today: the baseline decides"
    for name, status, ratio in report.baselines:
        yield f"  {name:44}{ratio:6.1f}×  {status}"
    yield ""
    yield "Most prefill can gain when only linear layers are free, Llama-3.1-8B on H100"
    for prompt, bound, tighter in report.attention:
        yield f"  {prompt // 1024:4}k prompt {bound:6.1f}× by operations {tighter:6.1f}× by measured time"
    yield ""
    yield "Electricity in the cost of an accelerator-hour: 1/10 cost is about price"
    tiers = list(dict.fromkeys(tier for _, tier, _ in report.electricity))
    yield f"  {'':14}" + "".join(f"{tier:>16}" for tier in tiers)
    for device in dict.fromkeys(device for device, _, _ in report.electricity):
        shares = [share for name, _, share in report.electricity if name == device]
        yield f"  {device:14}" + "".join(f"{share:>16.1%}" for share in shares)
    yield ""
    demand = report.demand
    yield from _wrapped(
        f"1,000× in five years doubles every {demand.doubling_s / 86400 / 30.44:.1f} months; "
        f"$100T over 1,000 GW is {demand.usd_per_w:.0f} $/W, "
        f"{demand.over_today[-1][1]:.1f} to {demand.over_today[0][1]:.1f} times today's estimates; "
        f"1,000 GW is {demand.world_electricity_frac:.0%} of the world's electricity and already "
        f"presumes {demand.efficiency_ratio:.0f}× efficiency."
        + (
            f" At this scenario's traffic, optical prefill would save "
            f"{1 - 1 / report.gains.whole:.0%} of the energy."
            if report.gains is not None and report.gains.whole > 0
            else ""
        ),
        indent=0,
    )
    yield ""
    for note in report.notes:
        yield from _wrapped(note, indent=0)


def full(checked: Checked) -> str:
    """Return one claim with everything that is known of it."""
    claim = checked.claim
    lines = _wrapped(f"“{claim.sentence}”", indent=0)
    rows = (
        ("who", f"{claim.said_by}, {claim.said_on}"),
        ("source", f"{claim.source} ({claim.status}, read {claim.read_on})"),
        ("basis", f"{claim.basis}; boundary {claim.boundary}"),
        ("baseline", claim.baseline),
        ("missing", "; ".join(claim.missing)),
        ("same", ", ".join(claim.same)),
        ("free", ", ".join(claim.free)),
        ("claimed", f"{claim.sign} {amount(claim.target, claim.unit)}"),
        ("here", _reading(checked.here)),
        ("best reading", _reading(checked.favourable)),
        ("verdict", checked.verdict),
    )
    for label, text in rows:
        lines += _labelled(label, text)
    for when in checked.holds_when:
        lines += _labelled("holds when", when_words(when))
    if checked.loads is not None:
        lines += _labelled("load", _load_words(checked))
    return "\n".join(lines)


def _load_words(checked: Checked, *, tick: str = "") -> str:
    """Return the changes of the nearest assumption set, and whether they are a reading's own."""
    changes = [f"{tick}{name} = {value}{tick}" for name, value in (checked.loads or {}).items()]
    of = " (its best reading)" if checked.is_load_of_best else ""
    return (", ".join(changes) or "nothing to change") + of


def _reading(verdict: Verdict) -> str:
    return f"{_cell(verdict)}: {verdict.note} [{verdict.scale.counts}]"


def _labelled(label: str, text: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, initial_indent=f"{label:13}", subsequent_indent=" " * 13,
        break_on_hyphens=False,
    )  # fmt: skip


def markdown(report: Report) -> str:
    """Return docs/claims.md: every claim, its source, its verdict on the shipped scenario."""
    lines = [
        "# Published claims",
        "",
        "Generated by `firstlight claims --markdown` from `catalog/data/claim/`; do not edit.",
        f"Verdicts are computed on the shipped scenario ({report.scenario}) by the fast tier.",
        "Numbers on different scales are never divided by each other.",
        "",
        "| claim | claimed | here | most favourable reading | verdict |",
        "|---|---|---|---|---|",
    ]
    for checked in report.claims:
        claim = checked.claim
        lines.append(
            f"| [{claim.sentence}](#{claim.id}) | {claim.sign} {amount(claim.target, claim.unit)} "
            f"| {_cell(checked.here)} | {_cell(checked.favourable)} | {checked.verdict} |"
        )
    for checked in report.claims:
        lines += _section(checked)
    lines += ["", "## What stands beside the claims", "", "```text", *_beside(report), "```", ""]
    return "\n".join(lines)


def _section(checked: Checked) -> Iterator[str]:
    claim = checked.claim
    yield from ("", f"## {claim.id}", "", f"> {claim.sentence}", "")
    yield f"- Said by {claim.said_by}, {claim.said_on}. Status `{claim.status}`."
    yield f"- Source: {claim.source} (read {claim.read_on})."
    yield f"- Basis: {claim.basis}; boundary: {claim.boundary}; baseline: {claim.baseline}."
    yield f"- Missing: {'; '.join(claim.missing)}."
    yield f"- Equal on both sides: {', '.join(claim.same)}; free: {', '.join(claim.free)}."
    for label, verdict in (("Here", checked.here), ("Best reading", checked.favourable)):
        yield f"- {label}: {_cell(verdict)}: {verdict.note} ({verdict.scale.counts})."
    for when in checked.holds_when:
        yield f"- Holds when {when_words(when)}."
    if checked.loads:
        yield f"- Nearest assumption set: {_load_words(checked, tick='`')}."
