"""Bad input: one line on stderr that says what, where and what is allowed; nothing half-written."""

from __future__ import annotations

import os

import pytest


def refused(ran, *words: str) -> None:
    assert ran.status == 2, ran
    assert ran.out == ""
    assert ran.err.count("\n") == 1
    assert ran.err.startswith("firstlight: ")
    for word in words:
        assert word in ran.err, ran.err


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ("powr_w=1e6", ["unknown field 'powr_w'", "did you mean 'power_w'"]),
        ("facility.powr_w=1e6", ["did you mean", "power_w"]),
        ("model=llama-3.1-70", ["unknown model", "did you mean 'llama-3.1-70b'"]),
        ("assumptions.t_relod_s=1e-5", ["did you mean 't_reload_s'"]),
        ("power_w=50 s", ["wrong unit", "W, kW or MW"]),
        ("ttft_s=2 W", ["wrong unit"]),
        ("power_w=-1", ["above 0"]),
        ("power_w=0", ["facility.power_w", "above 0"]),
        ("power_w=nan", ["nan", "above 0"]),
        ("power_w=inf", ["inf"]),
        ("power_w=[1]", ["allowed"]),
        ("cached_frac=1.5", ["allowed", "below 1"]),
        ("context_tok=0", ["at least 1"]),
        ("trace=/nowhere/trace.csv", ["/nowhere/trace.csv"]),
        ("power_w", ["key=value"]),
        ("=5", ["key=value"]),
        ("schema=2", ["schema", "allowed"]),
    ],
)
def test_impossible_setting(run, setting, words):
    refused(run("compare", "--set", setting), *words)


def test_unknown_key_in_a_file_names_file_line_and_key(run, tmp_path):
    path = tmp_path / "rack.toml"
    path.write_text("[facility]\n\npowr_w = 1e6\n")
    refused(run("compare", path), f"{path}:3: facility.powr_w: unknown key", "'power_w'")


@pytest.mark.parametrize("content", ["not toml ][", "\x00"])
def test_file_that_is_no_toml(run, tmp_path, content):
    path = tmp_path / "rack.toml"
    path.write_text(content)
    refused(run("compare", path), str(path))


def test_missing_file(run, tmp_path):
    refused(run("compare", tmp_path / "none.toml"), "none.toml", "No such file")


@pytest.mark.parametrize("power", ["1 kW", "5 kW"])
def test_budget_smaller_than_one_server(run, short_trace, power):
    refused(
        run("compare", "--set", f"trace={short_trace}", "--set", f"power_w={power}"),
        "smaller than one", "takes",
    )  # fmt: skip


def test_model_that_does_not_fit(run, short_trace):
    refused(
        run("compare", "--set", f"trace={short_trace}", "--set", "model=deepseek-v3"),
        "deepseek-v3", "does not fit", "needs", "has",
    )  # fmt: skip


HEAD = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
GOOD = "2023-11-16 18:15:46.68,374,44\n"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", ["empty"]),
        (HEAD, ["no request"]),
        (f"{HEAD}{GOOD}2023-11-16 18:15:47.00,many,44\n", ["3", "many"]),
        (f"{HEAD}{GOOD}2023-11-16 18:15:47.00,12,-3\n", ["3", "-3"]),
    ],
)
def test_empty_or_malformed_trace_names_the_row(run, tmp_path, text, words):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    refused(run("compare", "--set", f"trace={path}"), "trace.csv", *words)


@pytest.mark.parametrize("rate", ["0", "-5", "nan", "inf", "many"])
def test_impossible_rate(run, rate):
    refused(run("compare", f"--rate={rate}"), "--rate", "above 0")


@pytest.mark.parametrize(
    "arguments",
    [["compare", "--jason"], ["compare", "a.toml", "b.toml"], ["compar"], ["compare", "--seed=-1"]],
)
def test_unknown_option_argument_or_command(run, arguments):
    refused(run(*arguments))


@pytest.fixture
def unasked(monkeypatch):
    """Fails a test that starts the work although the output cannot be written."""

    def never(*_, **__):
        raise AssertionError("the work was started")

    monkeypatch.setattr("firstlight.evaluate.compare", never)


@pytest.mark.usefixtures("unasked")
class TestUnwritableOutput:
    """The output is tried before the work."""

    def test_missing_folder(self, run, tmp_path):
        refused(run("compare", "-o", tmp_path / "none" / "a.json"), "cannot be written")

    def test_folder(self, run, tmp_path):
        refused(run("compare", "-o", tmp_path), "is a folder")

    def test_file_as_folder(self, run, tmp_path):
        (tmp_path / "file").write_text("")
        refused(run("compare", "-o", tmp_path / "file" / "a.json"), "cannot be written")

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    def test_read_only_file(self, run, tmp_path):
        path = tmp_path / "a.json"
        path.write_text("kept")
        path.chmod(0o444)
        refused(run("compare", "-o", path), "read-only")
        assert path.read_text() == "kept"


def test_failed_work_leaves_the_old_file_and_no_other(run, tmp_path, short_trace):
    path = tmp_path / "answer.json"
    path.write_text("kept")
    refused(
        run("compare", "-o", path, "--set", f"trace={short_trace}", "--set", "power_w=1 kW"),
    )
    assert path.read_text() == "kept"
    assert [file.name for file in tmp_path.iterdir()] == ["answer.json"]
