"""The steps of a steady state on kernels alone: the median one, and the mean of all.

Each sequence that ends is replaced by a new prompt, so a step of a batch of n with answers of m
tokens has n / m prompts on average, taken as Poisson. Prompts run in one chunk beside the decoding
sequences, whose mean context is the prompt and half the answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from firstlight import models
from firstlight.calibrate.fit import PS_PER_S
from firstlight.errors import ModelError
from firstlight.roofline.step import bare_step_table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from firstlight.calibrate.steady import SteadyState
    from firstlight.steps import StepTable

    F64 = NDArray[np.float64]

TOKEN_BUDGET = 8192
"""Most tokens in a step: what vLLM takes where nothing is set."""
MOST_SEQS = 4096
_FAR = 6.0
"""Standard deviations of a Poisson law beyond which nothing is counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyStep:
    """What steps of a steady state take on kernels alone.

    Attributes:
        median_s: Kernels of the median step [s].
        mean_s: Kernels of the mean step [s].
        mean_j: Energy of the mean step above idle, whole group [J].
        median_prompts: Prompts in the median step.
        mean_prompts: Prompts in the mean step.
        active_params_tok: Weights that a token uses, over the tokens of the mean step.
    """

    median_s: float
    mean_s: float
    mean_j: float
    median_prompts: int
    mean_prompts: float
    active_params_tok: float


def steady_step(state: SteadyState, *, prompt_tok: int) -> SteadyStep:
    """Return the steps of a state whose prompts have `prompt_tok` tokens.

    Raises:
        CatalogError: The device is unknown or lacks a fact.
        ModelError: The model, a format, a group or the batch is not possible.
    """
    if state.batch > MOST_SEQS:
        raise ModelError(f"batch = {state.batch}; at most {MOST_SEQS}")
    shape = models.load(state.model)
    table = bare_step_table(
        shape,
        state.device,
        tp=state.tp,
        weights=state.weights,
        kv=state.kv,
        max_tok=TOKEN_BUDGET,
        max_seqs=MOST_SEQS,
    )
    rate = state.batch / state.osl_tok
    prompts = np.arange(int(rate + _FAR * np.sqrt(rate)) + 4, dtype=np.float64)
    share = _poisson(rate, prompts)
    median = int(np.searchsorted(np.cumsum(share), 0.5))
    time_s, energy_j = _steps(state, table, prompt_tok, prompts)
    tokens = state.batch + rate * prompt_tok
    return SteadyStep(
        median_s=float(time_s[median]),
        mean_s=float(share @ time_s),
        mean_j=float(share @ energy_j),
        median_prompts=median,
        mean_prompts=rate,
        active_params_tok=shape.params_active * tokens,
    )


def _poisson(rate: float, counts: F64) -> F64:
    log_factorial = np.concatenate([[0.0], np.cumsum(np.log(counts[1:]))])
    share = np.exp(counts * np.log(rate) - rate - log_factorial)
    return np.asarray(share / share.sum())


def _steps(state: SteadyState, table: StepTable, prompt_tok: int, prompts: F64) -> tuple[F64, F64]:
    """Return time [s] and energy above idle [J] of steps with so many prompts."""
    batch = state.batch
    contexts = batch * (prompt_tok + state.osl_tok / 2)
    tokens = np.minimum(batch + prompts * prompt_tok, TOKEN_BUDGET).astype(np.int64)
    chunk = min(prompt_tok, TOKEN_BUDGET)
    pairs = prompts * prompt_tok * (prompt_tok + 1) / 2
    decode_ps = float(table.decode_attn_floor_ps[batch])
    decode_ps += float(table.decode_attn_ctx_ps[batch]) * contexts
    prompt_ps = prompts * table.prefill_attn_floor_ps
    prompt_ps = prompt_ps + pairs * float(table.prefill_attn_pair_fs[chunk]) / 1e3
    both = np.maximum(prompt_ps, decode_ps)
    both = both + np.minimum(prompt_ps, decode_ps) * table.mix_1024 / 1024
    time_ps = table.linear_ps[tokens].astype(np.float64) + float(table.head_ps[batch]) + both
    energy_pj = table.linear_pj[tokens].astype(np.float64) + float(table.head_pj[batch])
    energy_pj = energy_pj + float(table.decode_attn_floor_pj[batch])
    energy_pj = energy_pj + float(table.decode_attn_ctx_pj[batch]) * contexts
    energy_pj = energy_pj + pairs * float(table.prefill_attn_pair_fj[chunk]) / 1e3
    return time_ps / PS_PER_S, energy_pj / PS_PER_S
