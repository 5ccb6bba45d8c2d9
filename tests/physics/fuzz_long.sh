#!/bin/sh
# Fuzzes the emulator's two boundaries: a million engines in Rust (proptest), many thousands through
# Python (hypothesis). FIRSTLIGHT_FUZZ_CASES and PROPTEST_CASES set the numbers.
set -eu
cd "$(dirname "$0")/../.."
PROPTEST_CASES="${PROPTEST_CASES:-1000000}" \
  cargo test --release --no-default-features --test rust optics_fuzz -- --nocapture
python -m pytest -q -m long tests/physics/test_emulator_inputs.py
