"""Traces from files: every format reads, every malformed row is refused by its number."""

import gzip
import json
import math
import sys

import numpy as np
import pytest
import zstandard

from firstlight.errors import OutputError, TraceError
from firstlight.workload import Trace, load, read_trace, write_trace

AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens"
OWN = "arrival_s,isl_tok,osl_tok"
STAMPS = ["2023-11-16 18:15:46.6805900", "2023-11-16 18:15:46.6805901", "2023-11-16 18:16:00"]


def write(folder, text, *, name="trace.csv"):
    file = folder / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return file


def azure(*rows, newline="\n"):
    return newline.join([AZURE, *rows, ""])


def test_azure_times_keep_their_seventh_digit(tmp_path):
    trace = read_trace(write(tmp_path, azure(*(f"{t},10,20" for t in STAMPS))))
    assert trace.arrival_ps().tolist() == [0, 100_000, 13_319_410_000_000]
    assert trace.isl_tok.tolist() == [10, 10, 10]
    assert trace.osl_tok.tolist() == [20, 20, 20]
    assert trace.duration_s == pytest.approx(13.31941 * 3 / 2)


@pytest.mark.parametrize(
    "second",
    [
        "2023-11-16T18:15:56Z",
        "2023-11-16 20:15:56+02:00",
        "2023-11-16 13:45:56-0430",
        "2023-11-16 18:15:56.000000000+00:00",
        "2023-11-16 18:15:56",
    ],
)
def test_zones_and_spellings_of_a_time(tmp_path, second):
    rows = ("2023-11-16 18:15:46Z,1,1", f"{second},2,2")
    assert read_trace(write(tmp_path, azure(*rows))).arrival_s.tolist() == [0.0, 10.0]


def test_midnight_and_month_are_crossed(tmp_path):
    rows = ("2024-02-29 23:59:59,1,1", "2024-03-01 00:00:01,2,2")
    assert read_trace(write(tmp_path, azure(*rows))).arrival_s.tolist() == [0.0, 2.0]


@pytest.mark.parametrize("prefix", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_byte_order_mark_and_line_ends_do_not_matter(tmp_path, prefix, newline):
    text = azure(*(f"{t},10,20" for t in STAMPS), newline=newline)
    assert len(read_trace(write(tmp_path, prefix + text.encode()))) == 3


def test_columns_are_found_by_name_and_more_may_follow(tmp_path):
    text = "user,OSL_TOK,arrival_s,isl_tok\na,7,0,3\nb,8,0.5,4\n"
    trace = read_trace(write(tmp_path, text))
    assert trace.isl_tok.tolist() == [3, 4]
    assert trace.osl_tok.tolist() == [7, 8]


@pytest.mark.parametrize(
    ("header", "first", "second"),
    [
        ("arrived_at,num_prefill_tokens,num_decode_tokens", "5", "6.5"),
        ("arrival_time_ns,input_toks,output_toks", "46926808", "1546926808"),
        (OWN, "1700000000.25", "1700000001.75"),
        (OWN, "-1", "5e-1"),
    ],
)
def test_other_csv_formats_start_at_their_first_request(tmp_path, header, first, second):
    trace = read_trace(write(tmp_path, f"{header}\n{first},10,2\n{second},20,3\n"))
    assert trace.arrival_s.tolist() == [0.0, 1.5]


def test_mooncake_lines_hold_milliseconds_and_hashes(tmp_path):
    lines = [
        {"timestamp": 100, "input_length": 6758, "output_length": 500, "hash_ids": [0, 1]},
        {"timestamp": 350.5, "input_length": 1, "output_length": 2, "hash_ids": []},
    ]
    text = "\n".join(json.dumps(line) for line in lines)
    trace = read_trace(write(tmp_path, text, name="trace.jsonl"))
    assert trace.arrival_s.tolist() == [0.0, 0.2505]
    assert trace.isl_tok.tolist() == [6758, 1]


def test_packed_suffixes_are_unpacked(tmp_path):
    text = azure(*(f"{t},10,20" for t in STAMPS)).encode()
    assert len(read_trace(write(tmp_path, gzip.compress(text), name="t.csv.gz"))) == 3


def test_zstd_reads_all_frames(tmp_path):
    text = azure(*(f"{t},10,20" for t in STAMPS)).encode()
    compressor = zstandard.ZstdCompressor()
    frames = compressor.compress(text[:50]) + compressor.compress(text[50:])
    assert len(read_trace(write(tmp_path, frames, name="t.csv.zst"))) == 3


def test_a_zstd_file_cut_anywhere_is_refused(tmp_path):
    rows = [f"{i},{1 + i * 7919 % 5000},{1 + i * 104729 % 900}" for i in range(60_000)]
    frame = zstandard.ZstdCompressor().compress("\n".join([OWN, *rows, ""]).encode())
    assert len(read_trace(write(tmp_path, frame, name="whole.csv.zst"))) == 60_000
    for cut in (0, 3, len(frame) // 2, len(frame) - 500, len(frame) - 1):
        with pytest.raises(TraceError, match="is not a whole zstd file"):
            read_trace(write(tmp_path, frame[:cut], name="cut.csv.zst"))


def test_zstd_without_its_package_says_what_to_install(tmp_path, monkeypatch):
    file = write(tmp_path, b"x", name="t.csv.zst")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(TraceError, match=r"pip install 'firstlight\[zstd\]'"):
        read_trace(file)


def test_rows_out_of_order_are_sorted_only_when_asked(tmp_path):
    file = write(tmp_path, f"{OWN}\n0,1,1\n5,2,2\n3,3,3\n3,4,4\n")
    with pytest.raises(TraceError, match=r"row 4: comes 2 s before the row above.*sort"):
        read_trace(file)
    trace = read_trace(file, sort=True)
    assert trace.arrival_s.tolist() == [0, 3, 3, 5]
    assert trace.isl_tok.tolist() == [1, 3, 4, 2]


LARGEST = 2**31 - 1
BAD_ROWS = [
    ("0,1", r"row 3: 2 columns; allowed: 3"),
    ("0,1,2,3", r"row 3: 4 columns; allowed: 3"),
    ("x,1,1", r"row 3, column arrival_s: 'x' is not allowed; a finite time in s"),
    (",1,1", r"row 3, column arrival_s: ''"),
    ("nan,1,1", r"row 3, column arrival_s: 'nan'"),
    ("inf,1,1", r"row 3, column arrival_s: 'inf'"),
    ("1e999999999999,1,1", r"row 3, column arrival_s"),
    ("1e30,1,1", r"row 3, column arrival_s"),
    ("1e8,1,1", r"row 3: comes 1e\+08 s after the first request; allowed: at most 1e\+07 s"),
    (
        "1,0,1",
        rf"row 3, column isl_tok: '0' is not allowed; a whole number of tokens, 1 to {LARGEST}",
    ),
    ("1,-5,1", r"row 3, column isl_tok: '-5'"),
    ("1,1.5,1", r"row 3, column isl_tok: '1.5'"),
    ("1,,1", r"row 3, column isl_tok: ''"),
    ("1,NaN,1", r"row 3, column isl_tok: 'NaN'"),
    ("1,1,0", r"row 3, column osl_tok: '0'"),
    ("1,1,2147483648", r"row 3, column osl_tok: '2147483648'"),
    ("1,1," + "9" * 5000, r"row 3, column osl_tok: '9{40}'"),
    ("1,1,０x", r"row 3, column osl_tok"),
    ('1,1,"2', r"row 3: a quote is never closed"),
    ("\n1,1,1", r"row 3: the row is blank; allowed: only at the end"),
]


@pytest.mark.parametrize(("row", "words"), BAD_ROWS)
def test_a_malformed_row_is_refused_by_number_column_and_value(tmp_path, row, words):
    file = write(tmp_path, f"{OWN}\n0,1,1\n{row}\n")
    with pytest.raises(TraceError, match=words) as caught:
        read_trace(file)
    assert str(caught.value).startswith(f"{file}, ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "stamp",
    [
        "2023-11-16",
        "16/11/2023 18:15:46",
        "2023-13-16 18:15:46",
        "2023-02-30 18:15:46",
        "2023-11-16 24:15:46",
        "2023-11-16 18:61:46",
        "2023-11-16 18:15:46+25:99",
        "2023-11-16 18:15:46+24:00",
        "0000-11-16 18:15:46",
        "1700000000",
        "",
    ],
)
def test_a_time_that_is_none_is_refused(tmp_path, stamp):
    rows = ("2023-11-16 18:15:45,1,1", f"{stamp},1,1")
    with pytest.raises(TraceError, match="row 3, column TIMESTAMP"):
        read_trace(write(tmp_path, azure(*rows)))


BAD_LINES = [
    ("{", "row 2: is not JSON"),
    ("[1]", "row 2: .* is not a JSON object"),
    ('{"timestamp": 1, "input_length": 2}', "row 2: has no 'output_length'"),
    ('{"timestamp": "1", "input_length": 2, "output_length": 3}', "row 2, column timestamp"),
    ('{"timestamp": NaN, "input_length": 2, "output_length": 3}', "row 2, column timestamp"),
    ('{"timestamp": 1, "input_length": 2.5, "output_length": 3}', "row 2, column input_length"),
    ('{"timestamp": 1, "input_length": true, "output_length": 3}', "row 2, column input_length"),
    ('{"timestamp": 1, "input_length": 2, "output_length": 0}', "row 2, column output_length"),
    (
        '{"timestamp": 1, "input_length": ' + "9" * 5000 + ', "output_length": 1}',
        "row 2: is not JSON",
    ),
    ("[" * 100_000, "row 2: is not JSON"),
]


@pytest.mark.parametrize(("line", "words"), BAD_LINES)
def test_a_malformed_line_is_refused_by_number(tmp_path, line, words):
    good = '{"timestamp": 0, "input_length": 2, "output_length": 3}'
    with pytest.raises(TraceError, match=words):
        read_trace(write(tmp_path, f"{good}\n{line}\n", name="t.jsonl"))


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty.csv", b"", "the file is empty"),
        ("blank.csv", b"\n \n", "the file is empty"),
        ("header.csv", f"{OWN}\n".encode(), "has a header but no request"),
        ("one.csv", f"{OWN}\n0,1,1\n".encode(), "give duration_s"),
        ("headless.csv", b"0,1,1\n1,1,1\n", "row 1: the header '0,1,1' is unknown; allowed"),
        ("typo.csv", b"arrival_s,isl_tok,osl_tokens\n", "did you mean 'osl_tok'"),
        ("latin.csv", f"{OWN}\n0,1,1\n".encode() + b"1,\xe9,1\n", "row 3: byte 0xe9 is not UTF-8"),
        ("half.csv.gz", gzip.compress(b"x" * 9999, mtime=0)[:-9], "is not a whole gzip file"),
        ("not.csv.gz", b"arrival", "is not a whole gzip file"),
        ("not.npz", b"PK nonsense", "is not a packed trace"),
        ("empty.npz", b"", "is not a packed trace"),
    ],
)
def test_a_file_that_is_no_trace_is_refused(tmp_path, name, content, words):
    with pytest.raises(TraceError, match=words):
        read_trace(write(tmp_path, content, name=name))


def test_a_missing_file_and_a_folder_are_refused(tmp_path):
    for path in (tmp_path / "none.csv", tmp_path, tmp_path / "none.npz"):
        with pytest.raises(TraceError, match="cannot be read"):
            read_trace(path)


def test_an_unknown_name_offers_the_nearest():
    with pytest.raises(TraceError, match="did you mean 'azure-2023-conv'"):
        load("azure-2023-con")


@pytest.fixture
def trace():
    return Trace(
        arrival_s=np.array([0.0, 0.123456789012, 0.123456789012, 3000.0000001]),
        isl_tok=np.array([1, 2**31 - 1, 70_000, 3]),
        osl_tok=np.array([5, 6, 7, 8]),
        duration_s=4000.0,
        name="t",
        source="a test",
    )


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".jsonl", ".jsonl.gz", ".npz"])
def test_a_written_trace_reads_back(tmp_path, trace, suffix):
    path = write_trace(trace, path=tmp_path / f"t{suffix}")
    back = read_trace(path, duration_s=None if suffix == ".npz" else 4000.0)
    assert back.arrival_ps().tolist() == trace.arrival_ps().tolist()
    assert back.isl_tok.tolist() == trace.isl_tok.tolist()
    assert back.osl_tok.tolist() == trace.osl_tok.tolist()
    assert back.duration_s == trace.duration_s
    assert [item.name for item in tmp_path.iterdir()] == [path.name]


def test_unwritable_outputs_leave_nothing(tmp_path, trace):
    with pytest.raises(OutputError, match=r"allowed: \.csv"):
        write_trace(trace, path=tmp_path / "t.xlsx")
    (tmp_path / "folder.csv").mkdir()
    for path in (tmp_path / "no" / "t.csv", tmp_path / "folder.csv"):
        with pytest.raises(OutputError, match="cannot be written"):
            write_trace(trace, path=path)
    assert [item.name for item in tmp_path.iterdir()] == ["folder.csv"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"arrival_s": np.array([])}, "0 arrivals, 4 prompts"),
        ({"arrival_s": np.array([0, 2, 1, 3.0])}, "sorted"),
        ({"arrival_s": np.array([0, 1, math.nan, 3])}, "finite"),
        ({"arrival_s": np.array([-1, 1, 2, 3.0])}, "≥ 0"),
        ({"arrival_s": np.array([0, 1, 2, 5000.0])}, "after the end"),
        ({"isl_tok": np.array([0, 1, 2, 3])}, "isl_tok: 0 to 3"),
        ({"osl_tok": np.array([1.5, 1, 2, 3])}, "osl_tok: one whole number"),
        ({"osl_tok": np.array([1, 2, 3, 2**31])}, "osl_tok: 1 to 2147483648"),
        ({"duration_s": 0.0}, "duration_s"),
        ({"duration_s": math.nan}, "duration_s"),
        ({"duration_s": 1e9}, "duration_s"),
    ],
)
def test_impossible_traces_are_refused(trace, changes, words):
    import dataclasses

    with pytest.raises(TraceError, match=words):
        dataclasses.replace(trace, **changes)


def test_a_trace_does_not_change_under_its_reader(trace):
    with pytest.raises(ValueError, match="read-only"):
        trace.isl_tok[0] = 9
