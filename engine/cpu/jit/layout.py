"""Records of addresses and sizes that Python fills and a compiled step reads."""

from __future__ import annotations

import numpy as np

LINE = 64
"""Size of a cache line in bytes; numbers that different threads write are one line apart."""

PROJECTION = np.dtype(
    [
        ("packed", np.int64),
        ("scales", np.int64),
        ("group_scales", np.int64),
        ("group_minima", np.int64),
        ("bias", np.int64),
        ("num_inputs", np.int64),
        ("num_outputs", np.int64),
        ("product", np.int64),
        ("preparation", np.int64),
        ("row_bytes", np.int64),
    ],
    align=True,
)
"""Record of a projection, outputs = inputs @ weight.T * scales + bias, by addresses (0: absent).

`packed` holds vectors of LANES outputs, one for each input, padded with zeros; in bfloat16 two inputs are interleaved
in pairs. Codes lie as `engine.cpu.gemm.code_weights` packs them, with group scales and minima.

`product` is the kernel that multiplies such weights (`engine.cpu.gemm.products`), and `preparation` the kernel that
rounds or cuts its input rows to rows of `row_bytes` bytes. Without one, rows stay float32.
"""

AHEAD = np.dtype(
    [
        ("num_heads", np.int64),
        ("hidden_norm", np.int64),
        ("token_norm", np.int64),
        ("gate_up", PROJECTION),
        ("down", PROJECTION),
        ("skip", np.int64),
        ("norms", np.int64),
    ],
    align=True,
)
"""Record of the Medusa heads (`engine.models.prediction_heads`); `num_heads` 0: none."""

MODEL = np.dtype(
    [
        ("hidden_size", np.int64),
        ("intermediate_size", np.int64),
        ("num_layers", np.int64),
        ("num_heads", np.int64),
        ("num_kv_heads", np.int64),
        ("head_dim", np.int64),
        ("block_size", np.int64),
        ("kv_bytes", np.int64),
        ("attention", np.int64),
        ("mixture", np.int64),
        ("recurrence", np.int64),
        ("head", PROJECTION),
        ("ahead", AHEAD),
        ("activation", np.int64),
        ("epsilon", np.float32),
        ("score_scale", np.float32),
        ("score_softcap", np.float32),
        ("logit_softcap", np.float32),
        ("logit_scale", np.float32),
        ("embedding_scale", np.float32),
        ("branch_scale", np.float32),
        ("gate_limit", np.float32),
        ("gate_gain", np.float32),
    ],
    align=True,
)
"""Record of the whole model; `kv_bytes` is the size of a number in the KV pool, 4 for float32, 2 for bfloat16.

`attention` is the kernel that attends over such a pool (`engine.cpu.attention.attention`), `mixture` that of experts
(`engine.cpu.step.experts`; 0: there are none), `recurrence` that of gated delta nets (`engine.cpu.step.recurrence`).
`activation` is SILU or GELU_TANH. A softcap of 0 means none. `logit_scale` is a factor of logits before their cap,
`branch_scale` one of what branches add to the residual. Experts clamp their gates to `gate_limit` unless it is 0;
`gate_gain` is then the factor within the sigmoid.
"""
SILU, GELU_TANH = range(2)
ACTIVATIONS = {"silu": SILU, "gelu_tanh": GELU_TANH}

EXPERT = np.dtype([("gate_up", PROJECTION), ("down", PROJECTION)], align=True)
"""Record of one expert."""

RECURRENT = np.dtype(
    [
        ("qkv", PROJECTION),
        ("gate", PROJECTION),
        ("rates_decays", PROJECTION),
        ("convolution", np.int64),
        ("decay_rate", np.int64),
        ("decay_bias", np.int64),
        ("norm", np.int64),
        ("states", np.int64),
        ("inputs", np.int64),
        ("num_key_heads", np.int64),
        ("num_value_heads", np.int64),
        ("key_dim", np.int64),
        ("value_dim", np.int64),
        ("window", np.int64),
        ("has_tiled_values", np.int64),
    ],
    align=True,
)
"""Record of a gated delta net (`engine.models.recurrent_layer`): projections, addresses of float32, and sizes.

`convolution` is [window, channels], the newest input's last. `states` are [slots, value heads, key_dim, value_dim], and
`inputs` [slots, window - 1, channels] the convolution's last inputs before each of them.
"""

LAYER = np.dtype(
    [
        ("attention_norm", np.int64),
        ("qkv", PROJECTION),
        ("qk_norm", np.int64),
        ("norms_heads_together", np.int64),
        ("output", PROJECTION),
        ("attended_norm", np.int64),
        ("mlp_norm", np.int64),
        ("gate_up", PROJECTION),
        ("down", PROJECTION),
        ("mlp_output_norm", np.int64),
        ("router", PROJECTION),
        ("experts", np.int64),
        ("num_experts", np.int64),
        ("num_chosen", np.int64),
        ("has_shared_expert", np.int64),
        ("normalizes_shares", np.int64),
        ("widest_expert", np.int64),
        ("keys", np.int64),
        ("values", np.int64),
        ("block_bytes", np.int64),
        ("window", np.int64),
        ("is_windowed", np.int64),
        ("is_local", np.int64),
        ("output_gate", PROJECTION),
        ("sinks", np.int64),
        ("recurrent", np.int64),
    ],
    align=True,
)
"""Record of one layer: projections, addresses of float32 (0: absent) and the window, the positions that a query sees.

A norm before a branch that is absent leaves the residual as its input. `norms_heads_together` is not 0 if `qk_norm` is
one norm over all query heads and one over all key heads. `is_local` is not 0 if the layer rotates by the local table,
`is_windowed` if it reads the block tables of the windowed pool.

A layer with experts has EXPERT records, `num_experts` of them and behind them the shared one if there is one, instead
of `gate_up` and `down`. The router's outputs are a score of each expert, and the gate of the shared one.

An `output_gate` with outputs scales each number that attention returns. `sinks` [heads] are scores that take a share of
the attention and have no value. `recurrent` is the address of a RECURRENT record in a layer with a gated delta net in
place of attention; 0: the layer attends.

Keys and values lie block by block, `block_bytes` apart, and head by head: keys [head_dim, block_size], values
[block_size, head_dim]. In bfloat16 two rows of either are interleaved in pairs.
"""

GROUP = np.dtype(
    [("first_token", np.int64), ("num_tokens", np.int64), ("row", np.int64), ("place", np.int64)],
    align=True,
)
"""Record of adjacent tokens of one sequence whose keys are read together.

`row` is the sequence's row in the block tables, `place` the index of the first token's output among those computed.
"""

STATE_ROW = np.dtype(
    [
        ("first_token", np.int64),
        ("num_tokens", np.int64),
        ("read", np.int64),
        ("write", np.int64),
        ("early_end", np.int64),
        ("early_slot", np.int64),
        ("late_end", np.int64),
        ("late_slot", np.int64),
    ],
    align=True,
)
"""Record of a sequence's tokens in a step, and of the slots of its recurrent states.

`read` is the slot of the state before the tokens, -1 if the sequence begins, and `write` that of the state behind them.
The state behind the sequence's first `early_end` tokens is written to `early_slot`, that behind `late_end` to
`late_slot`; ends outside the tokens mean nothing.
"""

STEP = np.dtype(
    [
        ("work", np.int64),
        ("first_layer", np.int64),
        ("unit", np.int64),
        ("num_tokens", np.int64),
        ("positions", np.int64),
        ("slots", np.int64),
        ("tables", np.int64),
        ("table_width", np.int64),
        ("window_slots", np.int64),
        ("window_tables", np.int64),
        ("groups", np.int64),
        ("num_groups", np.int64),
        ("sampled_groups", np.int64),
        ("num_sampled_groups", np.int64),
        ("state_rows", np.int64),
        ("num_state_rows", np.int64),
        ("heads_together", np.int64),
        ("rotations", np.int64),
        ("local_rotations", np.int64),
        ("sampled", np.int64),
        ("num_sampled", np.int64),
        ("hidden", np.int64),
        ("logits", np.int64),
        ("num_head_rows", np.int64),
        ("runs_heads", np.int64),
        ("residual", np.int64),
        ("sampled_residual", np.int64),
        ("qkv", np.int64),
        ("attended", np.int64),
        ("gated", np.int64),
        ("branch", np.int64),
        ("channels", np.int64),
        ("gates", np.int64),
        ("rates", np.int64),
        ("chosen_experts", np.int64),
        ("shares", np.int64),
        ("expert_outputs", np.int64),
        ("expert_rows", np.int64),
        ("expert_rows_size", np.int64),
        ("expert_inputs", np.int64),
        ("normed", np.int64),
        ("scratch", np.int64),
        ("scratch_size", np.int64),
        ("codes", np.int64),
        ("codes_size", np.int64),
        ("norm", np.int64),
        ("row_starts", np.int64),
        ("token_ids", np.int64),
        ("embedding", np.int64),
        ("embedding_bytes", np.int64),
        ("stops", np.int64),
        ("num_stops", np.int64),
        ("chosen", np.int64),
        ("taken", np.int64),
        ("predicted", np.int64),
        ("head_inputs", np.int64),
        ("head_normed", np.int64),
        ("ahead_logits", np.int64),
        ("embedded", np.int64),
        ("ahead_gated", np.int64),
        ("ahead_states", np.int64),
        ("heads", np.int64),
    ],
    align=True,
)
"""Record of one piece of work: addresses of int64 (positions, slots, block tables), GROUP records and float32.

`window_tables` and `window_slots` are those of layers with a window, whose pool may have blocks of its own.
`state_rows` are STATE_ROW records. `heads_together` is the number of KV heads that a thread takes at once. If not all
tokens are sampled, the last layer continues with the `sampled_groups` alone, in `sampled_residual`.

LAYERS_WORK computes all layers of a step, whose records begin at `first_layer`. If they use the matrix unit, `unit` is
the address of its configuration, otherwise 0. `rotations` are alternating cosines and sines [tokens, head_dim].
`normed`, `scratch` (`scratch_size` numbers), `codes` (`codes_size` bytes, for rounded or cut inputs), `expert_rows`
(`expert_rows_size` numbers, int64) and `expert_inputs` [tokens, hidden] have a part for each thread. `branch` [tokens,
hidden] receives the output of a branch that is normalized. `channels`, `gates` and `rates` are what recurrent layers
project, and `gates` those of attention's outputs. `chosen_experts` and `shares` [tokens, picks] are the
experts of each token and their weights, `expert_outputs` [tokens, picks, hidden] what they compute. `embedding` is the
table [vocab, hidden], float32 or bfloat16. `hidden` receives the normalized states of the `sampled` tokens, and
`logits` their logits unless it is 0. LOGITS_WORK computes the logits of `hidden`. AHEAD_WORK computes the heads' logits
[tokens, heads, vocabulary] behind the chosen tokens, whose embeddings are `embedded`.

If `num_head_rows` is not 0, LAYERS_WORK also runs the heads for so many rows. The sampled tokens of each row, with its
draft tokens, begin at `row_starts`. `taken` receives the number of each row's accepted drafts, or -1 for the first row
whose logits are NaN, after which no row is processed. `chosen` receives the most likely token after the accepted
drafts, and `predicted` [2, rows, heads] the tokens and kinds that the heads predict behind it. `predicted` is -1 where
no head runs: every chosen token is among the `stops`, or logits are NaN. Without `runs_heads`, tokens are chosen, no
head runs, and the first entry of `predicted` becomes 0. `head_inputs` [rows, hidden], `head_normed` (a part for each
thread), `embedded` and `ahead_logits` are buffers for this. `heads` is the kernel of the heads
(`engine.cpu.multi_step.medusa`).
"""
LAYERS_WORK, LOGITS_WORK, AHEAD_WORK = range(3)

ROW_LIMITS = np.dtype(
    [
        ("table_row", np.int64),
        ("max_length", np.int64),
        ("drafts_until", np.int64),
        ("num_verified", np.int64),
        ("num_predicted", np.int64),
        ("num_predicted_right", np.int64),
    ],
    align=True,
)
"""Record of one row of further steps: its row in the block tables, and lengths of its text in tokens.

The text has at most `max_length` tokens, and draft tokens are made up to `drafts_until`. `num_verified` receives the
number of draft tokens verified behind the first step. `num_predicted` and `num_predicted_right` receive the numbers of
draft tokens of the text's prediction that all steps verified and accepted.
"""
STEP_COSTS = np.dtype(
    [("plain_s", np.float64), ("fixed_s", np.float64), ("each_s", np.float64), ("least_gain", np.float64)], align=True
)
"""Record of a step's seconds: without draft tokens, more with some, more for each; and the least gain worth them."""
STEP_LOG = np.dtype([("nanoseconds", np.int64), ("num_drafts", np.int64)], align=True)
"""Record of a step that was computed, and the number of its draft tokens."""

MULTI_STEP = np.dtype(
    [
        ("num_left", np.int64),
        ("num_done", np.int64),
        ("since_ns", np.int64),
        ("deadline_ns", np.int64),
        ("longest_ns", np.int64),
        ("num_rows", np.int64),
        ("rows", np.int64),
        ("stops", np.int64),
        ("num_stops", np.int64),
        ("texts", np.int64),
        ("capacity", np.int64),
        ("found_tokens", np.int64),
        ("found_kinds", np.int64),
        ("ends", np.int64),
        ("most_drafts", np.int64),
        ("most_tokens", np.int64),
        ("is_speculative", np.int64),
        ("turns", np.int64),
        ("local_turns", np.int64),
        ("limits", np.int64),
        ("costs", np.int64),
        ("counts", np.int64),
        ("log", np.int64),
        ("memory_keys", np.int64),
        ("memory_values", np.int64),
        ("memory_size", np.int64),
        ("trials", np.int64),
        ("acceptance_rates", np.int64),
        ("num_kinds", np.int64),
        ("kinds", np.int64),
        ("num_listed", np.int64),
        ("head_kind", np.int64),
        ("token_ids", np.int64),
        ("positions", np.int64),
        ("slots", np.int64),
        ("window_slots", np.int64),
        ("groups", np.int64),
        ("sampled", np.int64),
        ("rotations", np.int64),
        ("local_rotations", np.int64),
        ("hidden", np.int64),
        ("logits", np.int64),
        ("follow", np.int64),
        ("goes_on", np.int64),
        ("decay", np.float64),
    ],
    align=True,
)
"""Record of steps that follow a step in the same call, each verifying drafts of heads and lookup.

`follow` is the kernel that lays out the next step (`engine.cpu.multi_step.further_step`), and sets `goes_on` to 0 if
there is none. `num_left` is the number of steps whose output is still to be accepted, the first step included; 0: there
are no further ones. None begins when `longest_ns` have passed since the end of the first step. Without
`is_speculative`, each computes one token of each row.

`rows` are DRAFT_ROW records (`engine.cpu.multi_step.draft_records`) and `limits` ROW_LIMITS, one of each row. `stops`
are the tokens that end each row's text, row after row. `costs` is a STEP_COSTS record.

`texts` [rows, capacity] become the texts with all output tokens. `found_tokens`, `found_kinds` [rows, most_drafts],
the DRAFT_END records `ends` and `counts` [rows] hold the draft tokens of the present step. `log` receives a STEP_LOG
record of each step.

The fields from `turns` and `local_turns` on, the rotations of every position, are the same for all steps: lookup's
memory and kinds, the first kind of the heads' predictions (`head_kind`), and buffers for one step's tokens.
"""

GENERATION, NUM_INSIDE, NUM_AWAKE, IS_CLOSED = 0, LINE, 2 * LINE, 3 * LINE
"""Offsets in a pool's control memory: generation (odd: open), threads inside, threads awake, closed flag."""
CONTROL_BYTES = 4 * LINE
