import json

import numpy as np
import pytest
from click.testing import CliRunner

from firstlight.cli.accuracy import command
from firstlight.errors import ModelError
from reference.model_files import gguf_bytes, tiny_metadata, tiny_tensors


@pytest.fixture
def files(tmp_path):
    """A small model whose tokens are single letters, and a text."""
    pytest.importorskip("tokenizers", reason="needs firstlight[models]")
    letters = [chr(c) for c in range(ord("a"), ord("z") + 1)]
    tokens = [*letters, "Ġ", *(f"<{i}>" for i in range(23))]
    # A merge is asked for: the commonest pair of English.
    metadata = tiny_metadata() | {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": [*tokens[:-1], "th"], "tokenizer.ggml.merges": ["t h"],
    }  # fmt: skip
    rng = np.random.default_rng(4)
    (tmp_path / "m.gguf").write_bytes(gguf_bytes(metadata, tiny_tensors(rng)))
    (tmp_path / "t.txt").write_text("the quick brown fox jumps over the lazy dog " * 10)
    return tmp_path


def run(files, *options):
    arguments = [str(files / "m.gguf"), "--text", str(files / "t.txt"), "--ctx", "32", *options]
    return CliRunner().invoke(command, arguments, catch_exceptions=False)


def test_the_tables_are_on_stdout_and_the_document_in_the_file(files):
    result = run(files, "--only", "calibrated", "-o", str(files / "o.json"))
    assert result.exit_code == 0
    for words in ("float32 perplexity", "calibrated range rotated", "only down",
                  "prompt by light", "cheapest setting", "readings a token"):  # fmt: skip
        assert words in result.stdout
    document = json.loads((files / "o.json").read_text())
    assert len(document["rows"]) == 2
    assert len(document["sensitivity"]) == 4
    assert document["split"][0]["prompt_tok"] == 32
    # Every layer of both blocks, and a line for each kind that names its worst.
    assert len(document["layers"]) == 14
    worst = min(document["layers"], key=lambda layer: layer["snr_db"])
    kind = worst["name"].rsplit(".", 1)[-1]
    line = next(x for x in result.stdout.splitlines() if x.startswith(f"  {kind:8} "))
    assert worst["name"] in line
    assert f"{worst['snr_db']:.1f}" in line


def test_losses_of_layers_are_averaged_over_seeds_with_their_error(files):
    options = ("--only", "σ 1.0% of the range rotated", "--no-split", "--seeds", "3")
    result = run(files, *options, "-o", str(files / "o.json"))
    rows = json.loads((files / "o.json").read_text())["sensitivity"]
    for row in rows:
        losses = [each["nll_difference"] for each in row["measurements"]]
        assert len(set(losses)) == 3
        assert (
            f"{row['name']:16} {sum(losses) / 3:+.4f} ± {row['ratio_se'] / row['ratio']:.4f}"
            in (result.stdout)
        )


def test_json_is_one_document(files):
    result = run(files, "--only", "W8A8", "--json", "--no-split", "--no-sensitivity")
    document = json.loads(result.stdout)
    assert document["schema"] == 1
    assert document["sensitivity"] is None
    assert document["layers"] == []
    assert 0.9 < document["rows"][0]["ratio"] < 1.1


def test_the_picture_is_drawn(files):
    pytest.importorskip("matplotlib", reason="needs firstlight[plot]")
    result = run(
        files, "--only", "σ", "--plot", str(files / "p.svg"), "--no-split", "--no-sensitivity"
    )
    assert result.exit_code == 0
    assert "<svg" in (files / "p.svg").read_text()


def test_bad_input_is_refused_with_what_is_allowed(files):
    with pytest.raises(ModelError, match=r"none\.txt: No such file"):
        run(files, "--text", str(files / "none.txt"))
    (files / "t.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ModelError, match="not UTF-8 at byte 0"):
        run(files)
    (files / "t.txt").write_text("short")
    with pytest.raises(ModelError, match="a window 32"):
        run(files)
    result = run(files, "--only", "nonsense")
    assert result.exit_code == 2
    assert "there are:" in result.stderr
