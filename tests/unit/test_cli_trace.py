"""`firstlight trace`: what it prints, writes and refuses."""

import json
import subprocess
import sys

import pytest


def firstlight(*words):
    return subprocess.run(
        [sys.executable, "-m", "firstlight", "trace", *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_info_prints_a_table_and_the_same_facts_as_json():
    table = firstlight("info", "azure-2023-code")
    assert table.returncode == 0, table.stderr
    assert max(map(len, table.stdout.splitlines())) <= 100
    assert "8,819" in table.stdout
    facts = json.loads(firstlight("info", "azure-2023-code", "--json").stdout)
    assert facts["requests"] == 8819
    assert facts["isl_tok"]["max"] == 7437


def test_convert_there_and_back_changes_nothing(tmp_path):
    packed, text, again = tmp_path / "a.npz", tmp_path / "a.csv.gz", tmp_path / "b.npz"
    for source, target in (("azure-2023-code", packed), (packed, text), (text, again)):
        done = firstlight("convert", source, "-o", target, "--source", "same")
        assert done.returncode == 0, done.stderr
        assert done.stdout == ""
    assert packed.read_bytes() == again.read_bytes()


def test_convert_scales_and_says_what_it_clipped(tmp_path):
    done = firstlight(
        "convert", "azure-2023-code", "-o", tmp_path / "a.csv", "--context-tok", 4000,
        "--max-context-tok", 8000,
    )  # fmt: skip
    assert done.returncode == 0
    assert "% of requests clipped" in done.stderr


def test_make_draws_the_same_trace_for_the_same_seed(tmp_path):
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        done = firstlight(
            "make",
            "--preset",
            "rag",
            "--duration",
            100,
            "--seed",
            seed,
            "-o",
            tmp_path / f"{name}.csv",
        )
        assert done.returncode == 0, done.stderr
    a, b, c = ((tmp_path / f"{name}.csv").read_bytes() for name in "abc")
    assert a == b != c


@pytest.mark.parametrize(("preset", "hour"), [("chat", "conv"), ("code", "code")])
def test_make_writes_recorded_presets_as_they_are(tmp_path, preset, hour):
    made, recorded = tmp_path / "a.csv", tmp_path / "b.csv"
    done = firstlight("make", "--preset", preset, "-o", made)
    assert done.returncode == 0, done.stderr
    firstlight("convert", f"azure-2023-{hour}", "-o", recorded)
    assert made.read_bytes() == recorded.read_bytes()


def test_make_takes_fixed_lengths(tmp_path):
    done = firstlight(
        "make", "--rate", 5, "--isl", 300, "--osl", 20, "--duration", 50, "-o", tmp_path / "a.csv"
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "a.csv").read_text().splitlines()[1].endswith(",300,20")


def test_bad_input_is_one_line_and_exit_code_two(tmp_path):
    bad = tmp_path / "bad.csv"
    bad.write_text("arrival_s,isl_tok,osl_tok\n0,1,1\n1,x,1\n")
    for words in (
        ("info", bad),
        ("info", "chatt"),
        ("info", tmp_path / "none.csv"),
        ("convert", "chat", "-o", tmp_path / "a.xlsx"),
        ("convert", "chat", "-o", tmp_path / "no" / "a.csv"),
        ("convert", "chat", "-o", tmp_path / "a.csv", "--context-tok", "nan"),
        ("make", "--preset", "chat", "--rate", "3", "-o", tmp_path / "a.csv"),
        ("make", "--preset", "chot", "-o", tmp_path / "a.csv"),
        ("make", "--rate", "1", "-o", tmp_path / "a.csv"),
        ("make", "--preset", "rag", "--rate", "-1", "-o", tmp_path / "a.csv"),
    ):
        done = firstlight(*words)
        assert done.returncode == 2, words
        assert done.stdout == ""
        assert done.stderr.startswith("firstlight: ")
        assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "a.csv").exists()


@pytest.mark.parametrize(
    "words", [("make", "-o", "a.csv", "--seed", "-1"), ("info",), ("convert", "chat")]
)
def test_wrong_usage_exits_with_two(words):
    assert firstlight(*words).returncode == 2
