"""Error of a product against the photons it may use and the bits of its mask.

Prints the numbers, and draws them into the file named on the command line, which needs
`pip install 'firstlight[plot]'`: python examples/error_against_light.py docs/error_against_light.png
"""

import sys

import numpy as np

from firstlight.optics import Engine
from firstlight.optics.study import sweep
from firstlight.report.emulation import draw_sweep

PHOTONS = [1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 100_000]
BITS = {"2-bit mask": 2, "3-bit mask": 3, "4-bit mask": 4, "6-bit mask": 6, "8-bit mask": 8}

rng = np.random.default_rng(0)
x = rng.standard_normal((64, 1024), dtype=np.float32)
w = rng.standard_normal((256, 1024), dtype=np.float32)

curves = {}
print("signal over error [dB]")
print(f"{'photons a MAC':<14}" + "".join(f"{photons:>8g}" for photons in PHOTONS))
for label, bits in BITS.items():
    engine = Engine.preset("iris-nova-optimistic", mask_bits=bits)
    curves[label] = sweep(engine, x, w, name="photons_per_mac", values=PHOTONS, calibration=x)
    print(f"{label:<14}" + "".join(f"{point.snr_db:>8.1f}" for point in curves[label]))

if len(sys.argv) > 1:
    draw_sweep(sys.argv[1], curves, name="photons_per_mac")
