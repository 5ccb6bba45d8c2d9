"""What the pictures may not pretend: differences between tiers, wins in a tie, silence in a void."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import pytest
from double import DoubleSolver

from firstlight import workload
from firstlight.errors import ScenarioError
from firstlight.tui import closed_form, present
from firstlight.tui.answer import Answer, DesignAnswer, Tier
from firstlight.tui.engine import Curve, Engine, Idle, PinSolved, Question, crossings
from firstlight.tui.field import BY_KEY, FIELDS, FROM_FILE
from firstlight.tui.metric import METRICS
from firstlight.tui.present import Known
from firstlight.tui.scenario_file import load, scenario_of, text_of
from firstlight.tui.state import DEFAULT, parse_share, share
from firstlight.tui.symbols import SETS
from firstlight.tui.theme import THEMES
from firstlight.tui.widgets import line_chart
from firstlight.tui.widgets.line_chart import _steady


def answer(tier, energy_j=(3.0, 2.0, 1.0), *, is_feasible=True, reason=""):
    names = ("gpu-colocated", "gpu-disaggregated", "optical+gpu")
    return Answer(
        tier=tier,
        designs=tuple(
            DesignAnswer(
                name=name, label=name, metrics={"energy_j_per_request": joule},
                is_feasible=is_feasible, reason=reason,
            )
            for name, joule in zip(names, energy_j, strict=True)
        ),
    )  # fmt: skip


def words(table):
    return "\n".join(" ".join(cell.text for cell in row) for row in table.rows)


@pytest.mark.parametrize(
    ("before", "after", "says_change"),
    [
        (Tier.FULL, Tier.FULL, True),
        (Tier.COARSE, Tier.FULL, False),
        (Tier.COARSE, Tier.COARSE, True),
    ],
)
def test_compare_forms_no_difference_between_two_ways_of_answering(before, after, says_change):
    known = Known(
        setup=DEFAULT.replace("gpu", "b200-8x"),
        pinned=DEFAULT,
        answer=answer(after, (2.0, 2.0, 2.0)),
        pin_answer=answer(before),
    )
    said = words(present.compare(known))
    assert ("%" in said) == says_change
    assert ("changes come when A is simulated as B is" in said) != says_change
    assert ("≈3.00J" in said) == (before is not Tier.FULL)


def test_a_pinned_scenario_is_answered_as_the_live_one_is():
    reports = []
    engine = Engine(DoubleSolver(coarse_s=0, full_s=0), reports.append, quiet_s=0.01)
    engine.start()
    engine.submit(
        Question(setup=DEFAULT.replace("power_w", 2e6), pinned=DEFAULT, metric=METRICS[5])
    )
    for _ in range(500):
        if any(isinstance(r, Idle) for r in reports):
            break
        time.sleep(0.02)
    engine.stop()
    tiers = [r.answer.tier for r in reports if isinstance(r, PinSolved)]
    assert tiers[0] is Tier.COARSE
    assert tiers[-1] is Tier.FULL


def curve(rows):
    xs = np.array([1e3 * 2**i for i in range(len(rows))])
    return Curve(
        generation=0, key="context_tok", xs=xs, answers=tuple(rows), ghosts=(), is_final=True
    )


def test_the_void_says_where_it_begins_and_why():
    rows = [answer(Tier.ANALYTIC)] * 3
    rows += [answer(Tier.ANALYTIC, is_feasible=False, reason="TTFT 2 s cannot be met")] * 2
    found = present.void(curve(rows))
    assert found == (4e3, "above 4.00k no design serves: TTFT 2 s cannot be met")
    assert present.void(curve(rows[:3])) is None
    assert present.void(curve(rows[3:])) is None


def test_a_refined_curve_is_drawn_and_not_the_one_before_it():
    """Reports of one question are not the same report."""
    rough = curve([answer(Tier.ANALYTIC)] * 3)
    fine = curve([answer(Tier.ANALYTIC)] * 5)
    assert rough != fine
    for found, count in ((rough, 3), (fine, 5)):
        series = present.series_of(found, METRICS[5], "inference")
        assert len(series) == 3
        assert all(s.xs.size == count for s in series)


def test_nothing_is_won_in_a_tie():
    """A ratio that flickers around one within a per cent has one crossing, not four."""
    heights = [0.3, 0.1, 0.004, -0.003, 0.006, -0.002, -0.2]
    xs = [float(x) for x in range(len(heights))]

    def edge(x):
        return float(np.interp(x, xs, heights))

    values, first = crossings(xs, edge, is_log=False)
    assert first is True
    assert len(values) == 1
    assert math.isclose(edge(values[0]), 0.0, abs_tol=1e-5)


def test_the_winner_changes_only_where_that_can_be_seen_and_then_where_it_happened():
    a = np.array([0.5, 0.50, 0.500, 0.50, 0.5, 0.5, 0.5])
    b = np.array([0.4, 0.51, 0.495, 0.51, 0.6, 0.7, 0.8])
    best = _steady(np.stack([a, b]), 0.05)
    assert best.tolist() == [0, 0, 0, 1, 1, 1, 1]


CHOICES = [(f.key, word) for f in FIELDS for word, _ in f.choices if word != FROM_FILE]


@pytest.mark.parametrize(("key", "word"), CHOICES, ids=[f"{k}-{w}" for k, w in CHOICES])
def test_every_choice_is_one_the_calculation_knows(key, word):
    """It may be impossible here, for a reason of physics; it is never an unknown word."""
    found = closed_form.answer(DEFAULT.replace(key, word))
    for design in found.designs:
        assert "unknown" not in design.reason
        assert design.is_feasible or design.reason


def test_a_trace_file_of_ones_own(tmp_path):
    trace = workload.poisson_trace(2.0, duration_s=60.0, isl=1024, osl=64, seed=1, name="mine")
    path = workload.write_trace(trace, path=tmp_path / "mine.csv")
    traffic = BY_KEY["traffic"]
    setup = DEFAULT.replace("traffic", traffic.parse(str(path)))
    assert traffic.shown(setup["traffic"]) == "mine.csv"
    assert scenario_of(setup).workload.trace == str(path)
    assert closed_form.answer(setup) != closed_form.answer(DEFAULT)
    assert parse_share(share(setup))[0] == setup
    (tmp_path / "x.toml").write_text(text_of(setup), encoding="utf-8")
    assert load(tmp_path / "x.toml")["traffic"] == str(path)
    with pytest.raises(ScenarioError, match="there is no file"):
        traffic.parse(str(tmp_path / "other.csv"))


def test_a_kept_answer_claims_no_time():
    known = Known(answer=answer(Tier.FULL), seconds=2e-5)
    assert present.state_words(known) == ("simulated", True)
    assert present.state_words(replace(known, seconds=4.0))[0] == "simulated in 4.00s"


def test_sentence_and_chart_name_the_same_end_of_a_win():
    """Optics stop serving while silicon goes on: both name the last context they serve."""
    served = answer(Tier.ANALYTIC)
    silicon = Answer(
        tier=Tier.ANALYTIC,
        designs=(*served.designs[:2], replace(served.designs[2], is_feasible=False)),
    )
    known = Known(setup=DEFAULT, curve=curve([served] * 5 + [silicon] * 3))
    assert "optics win J/request for context ≤ 16.0k" in present.wins(known)
    strips = line_chart.render(80, 20, THEMES["dark"], SETS["braille"], present.chart(known))
    assert any("◆16k" in strip.text for strip in strips)
