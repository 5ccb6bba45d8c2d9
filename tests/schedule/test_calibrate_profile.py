"""A device and its serving stack from a profile of steps."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from firstlight import models
from firstlight.calibrate import fit_steps, read_steps
from firstlight.calibrate.profile import kernels_s
from firstlight.cli import main
from firstlight.cli.root import firstlight
from firstlight.errors import ScenarioError, TraceError
from firstlight.roofline.step import bare_step_table

pytest.importorskip("scipy", reason="the fit needs scipy")

STEPS = Path(__file__).parents[1] / "data" / "splitwise-profile.csv"
NAMES = "model,device,tp,weights,kv,tokens,sequences,context_tok,seconds"
ROW = "llama-3.1-8b,h100-sxm,1,bf16,bf16"


@pytest.fixture(scope="module")
def steps():
    return read_steps(STEPS)


@pytest.fixture(scope="module")
def found(steps):
    return fit_steps(steps)


def test_planted_numbers_are_found_again(steps):
    ours = [step for step in steps if step.device == "h100-sxm"]
    planted = [
        replace(step, seconds=0.9 * kernels_s(step) + 300e-6 + 4e-6 * step.sequences)
        for step in ours
    ]
    found = fit_steps(planted)
    numbers = found.calibrations["h100-sxm"]
    assert numbers.kernel_factor == pytest.approx(0.9, rel=1e-6)
    assert numbers.step_s == pytest.approx(300e-6, rel=1e-4)
    assert numbers.sequence_s == pytest.approx(4e-6, rel=1e-4)
    assert found.median_error_frac(is_held_out=True) < 1e-6


@pytest.mark.parametrize("device", ["h100-sxm", "a100-sxm"])
def test_steps_that_were_kept_apart_are_met(found, device):
    """Three group sizes, prompts and decode of a 2023 stack: 20 % at the median, three numbers."""
    assert found.median_error_frac(device, is_held_out=True) < 0.20
    assert sum(one.is_held_out for one in found.judged if one.step.device == device) >= 20


def test_a_decode_step_and_prompts_are_read_off_the_table(steps):
    table = bare_step_table(
        models.load("llama-2-70b"), "h100-sxm", tp=8, weights="fp16", kv="fp16",
        max_tok=4096, max_seqs=512,
    )  # fmt: skip
    decode = replace(steps[0], device="h100-sxm", tp=8, tokens=8, sequences=8, context_tok=700)
    expected = int(table.linear_ps[8]) + int(table.head_ps[8]) + int(table.decode_attn_floor_ps[8])
    expected += int(table.decode_attn_ctx_ps[8]) * 8 * 700
    assert kernels_s(decode) == pytest.approx(expected / 1e12, rel=1e-12)
    # 1001 tokens of two prompts: chunks of 501 and 500, 100 tokens already there
    prompts = replace(decode, tokens=1001, sequences=2, context_tok=100)
    expected = int(table.linear_ps[1001]) + int(table.head_ps[2]) + 2 * table.prefill_attn_floor_ps
    for chunk in (500, 501):
        pairs = chunk * 100 + chunk * (chunk + 1) // 2
        expected += pairs * int(table.prefill_attn_pair_fs[chunk]) / 1000
    assert kernels_s(prompts) == pytest.approx(expected / 1e12, rel=1e-12)


def test_what_is_not_covered_is_listed_and_not_fitted(steps, found):
    more = fit_steps(
        [*steps, replace(steps[0], model="llama-4-scout"), replace(steps[0], tokens=1 << 18)]
    )
    assert "unknown model" in more.judged[-2].why_not
    assert "at most 131072" in more.judged[-1].why_not
    assert more.calibrations == found.calibrations


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (f"{ROW},7,8,600,0.01", "row 2: tokens = 7 for 8 sequences"),
        (f"{ROW},8,8,0,0.01", "row 2: context_tok = 0 in a step that decodes"),
        (f"{ROW},8,8,-1,0.01", "row 2: context_tok = '-1'; a whole number, 0 to"),
        (f"{ROW},8,8,600,0", "row 2: seconds = '0'; a number above 0"),
        (f"{ROW},8,8,600,inf", "row 2: seconds = 'inf'"),
        (f"{ROW},8,8,600", "row 2: seconds is empty"),
        (f"{ROW},8,8,600,0.01,9", "row 2: more values than columns"),
        ("", "0 rows"),
    ],
)
def test_a_bad_row_is_refused_in_one_line(tmp_path, row, said, monkeypatch, capsys):
    path = tmp_path / "profile.csv"
    path.write_text(f"{NAMES}\n{row}\n")
    with pytest.raises(TraceError, match=said):
        read_steps(path)
    monkeypatch.setattr(sys, "argv", ["firstlight", "calibrate", str(path)])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_too_few_steps_and_an_impossible_split_are_refused(steps):
    with pytest.raises(TraceError, match="2 steps to fit; allowed: 3 or more"):
        fit_steps(steps[:2], hold_out=0)
    with pytest.raises(ScenarioError, match="2 or more"):
        fit_steps(steps, hold_out=-1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "row 1: no column says what was measured; allowed: output_tok_per_s"),
        ("model,second\n", "did you mean 'second'?"),
        (f"{NAMES}\nnope,h100-sxm,1,bf16,bf16,8,8,9,0.1\n", "row 2: unknown model 'nope'"),
        (f"{NAMES}\n{ROW},8,8,600,0.01\n", "h100-sxm: 1 steps to fit; allowed: 3 or more"),
    ],
)
def test_a_file_that_says_too_little_is_refused(tmp_path, text, said, monkeypatch, capsys):
    path = tmp_path / "profile.csv"
    path.write_text(text)
    monkeypatch.setattr(sys, "argv", ["firstlight", "calibrate", str(path)])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert printed.err.count("\n") == 1
    assert not printed.out


def test_the_example_of_the_help_runs_and_the_command_prints_both_errors(found, tmp_path):
    text = CliRunner().invoke(firstlight, ["calibrate", "--help"]).output
    lines = [line.strip() for line in text.splitlines()]
    start = lines.index(NAMES)
    path = tmp_path / "profile.csv"
    path.write_text("\n".join(lines[start : start + 4]) + "\n")
    result = CliRunner().invoke(firstlight, ["calibrate", str(path), "--hold-out", "0"])
    assert result.exit_code == 0, result.output
    assert "nothing kept apart" in result.output
    out = tmp_path / "fit.json"
    result = CliRunner().invoke(firstlight, ["calibrate", str(STEPS), "--json", "-o", str(out)])
    assert result.exit_code == 0, result.output
    document = json.loads(out.read_text())
    assert [one["device"] for one in document["calibrations"]] == list(found.calibrations)
    assert sum(one["held_out"] for one in document["steps"]) == sum(
        one.is_held_out for one in found.judged
    )
