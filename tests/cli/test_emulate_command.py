"""`firstlight emulate`: what it prints, what it writes and what it refuses."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from firstlight.cli.root import COMMANDS, firstlight
from firstlight.errors import FirstlightError

SMALL = ("--shape", "8", "64", "24")


def run(*arguments):
    result = CliRunner().invoke(firstlight, ["emulate", *arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_the_command_is_listed():
    assert "emulate" in COMMANDS


def test_the_answer_comes_first_and_fits_80_columns():
    lines = run(*SMALL).splitlines()
    assert lines[0].startswith("8 × 64 × 24 through iris-nova-optimistic: signal over error")
    assert any(line.startswith("weight bits") for line in lines)
    assert max(map(len, lines)) <= 80


def test_json_is_one_document_with_the_ledger():
    document = json.loads(run(*SMALL, "--json", "--seed", "3"))
    assert document["shape"] == [8, 64, 24]
    ledger = document["ledger"]
    assert (ledger["cycles"], ledger["adc_reads"], ledger["dac_writes"]) == (8, 192, 512)
    assert ledger["energy_j"] == pytest.approx(sum(ledger["energy_j_by_part"].values()))
    assert {"weight bits", "shot noise", "crosstalk"} <= {
        row["effect"] for row in document["error_sources"]
    }


def test_files_go_in_and_the_product_comes_out(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((5, 40)).astype(np.float32)
    w = rng.standard_normal((7, 40)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "w.npy", w)
    ideal = [
        argument
        for name in ("mask_bits", "activation_bits", "adc_bits", "adc_enob")
        for argument in ("--set", f"{name}=none")
    ]
    out = tmp_path / "y.npy"
    run("--preset", "physical-limit", "--x", str(tmp_path / "x.npy"), "--w",
        str(tmp_path / "w.npy"), *ideal, "--set", "photons_per_mac=1e9", "-o", str(out))  # fmt: skip
    np.testing.assert_allclose(np.load(out), x @ w.T, atol=1e-3)


def test_a_sweep_has_a_bar_and_a_number_for_each_value():
    lines = run(*SMALL, "--sweep", "mask_bits=2..4").splitlines()
    assert [line.split()[0] for line in lines] == ["mask_bits", "2", "3", "4"]
    assert all("█" in line and "dB" in line for line in lines[1:])
    ratios = [float(line.split("dB")[0].split()[-1]) for line in lines[1:]]
    assert ratios == sorted(ratios)


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_sweep_can_be_drawn(tmp_path, ending):
    pytest.importorskip("matplotlib", reason="the plot extra is not installed")
    picture = tmp_path / f"sweep.{ending}"
    run(*SMALL, "--sweep", "photons_per_mac=1..1000:log:4", "--plot", str(picture))
    assert picture.stat().st_size > 2000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--preset", "iris-nova-optimist"], ["iris-nova-optimistic"]),
        (["--set", "mask_bit=4"], ["mask_bit", "did you mean 'mask_bits'"]),
        (["--set", "mask_bits"], ["mask_bits", "NAME=VALUE"]),
        (["--sweep", "mask_bits=8..2"], ["8..2"]),
        (["--sweep", "mask_bits"], ["NAME=2..8"]),
        (["--sweep", "mask_bits=1..4:log:x"], ["x", "2 to 1000"]),
        (["--plot", "a.png"], ["--sweep"]),
        (["--sweep", "mask_bits=2..3", "--plot", "a.gif"], ["a.gif", ".svg"]),
        (["--x", "no/such.npy"], ["--x", "no/such.npy", "No such file"]),
        (["-o", "y.txt"], ["y.txt", ".npy"]),
        (["-o", "no/such/y.npy"], ["No such file"]),
    ],
)
def test_bad_input_is_one_line(arguments, words):
    result = CliRunner().invoke(firstlight, ["emulate", *SMALL, *arguments])
    assert isinstance(result.exception, FirstlightError)
    text = str(result.exception)
    assert "\n" not in text
    for word in words:
        assert word in text


def test_a_product_is_whole_or_not_there(tmp_path):
    out = tmp_path / "y.npy"
    with pytest.raises(FirstlightError, match=r"w\.npy"):
        run("--w", str(tmp_path / "w.npy"), "-o", str(out))
    assert list(tmp_path.iterdir()) == []

    run(*SMALL, "-o", str(out))
    assert np.load(out).shape == (8, 24)
    assert [path.name for path in tmp_path.iterdir()] == ["y.npy"]


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    def full(self, content):
        self.touch()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.write_bytes", full)
    with pytest.raises(FirstlightError, match="No space left on device; nothing was written"):
        run(*SMALL, "-o", str(tmp_path / "y.npy"))
    assert list(tmp_path.iterdir()) == []


def test_what_makes_no_single_product_or_holds_objects_is_refused(tmp_path):
    with pytest.raises(FirstlightError, match="--sweep makes several"):
        run(*SMALL, "--sweep", "mask_bits=2..3", "-o", str(tmp_path / "y.npy"))
    np.save(tmp_path / "x.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(FirstlightError, match="it holds Python objects") as refusal:
        run("--x", str(tmp_path / "x.npy"))
    assert "\n" not in str(refusal.value)


def test_no_light_is_not_unlimited_light(tmp_path):
    np.save(tmp_path / "w.npy", np.zeros((4, 32), np.float32))
    assert "light       none carries signal" in run("--w", str(tmp_path / "w.npy"))
    assert "unlimited" not in run("--shape", "3", "5", "7")
