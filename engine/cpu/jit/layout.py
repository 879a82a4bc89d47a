"""What a compiled step is told, as records of addresses and sizes that Python fills and compiled code reads."""

from __future__ import annotations

import numpy as np

LINE = 64
"""Bytes that processors exchange at a time: numbers that different threads write lie so far apart."""

PROJECTION = np.dtype(
    [
        ("packed", np.int64),
        ("weight", np.int64),
        ("weight_bytes", np.int64),
        ("scales", np.int64),
        ("bias", np.int64),
        ("rounds", np.int64),
        ("offsets", np.int64),
        ("num_inputs", np.int64),
        ("num_outputs", np.int64),
    ],
    align=True,
)
"""outputs = inputs @ weight.T * scales + bias: addresses (0: there is none), and the bytes of one number of the weight.

4 bytes are float32, 2 bfloat16, 1 int8. `packed` are vectors of LANES outputs, one behind the other for each input, of
bfloat16 two inputs' in pairs, the last outputs' filled up with zeros; `weight` are the same numbers as they are written
down, 0 where nobody wants those. `rounds`: not 0 where inputs are rounded to int8 first. Where `offsets`, int32, is not
0, that is done to codes: weights stand in fours of inputs then, offsets and scales are filled up with zeros, too.
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
"""Of heads that say further tokens ahead (`engine.models.prediction_heads`); 0 of them: there are none."""

MODEL = np.dtype(
    [
        ("hidden_size", np.int64),
        ("intermediate_size", np.int64),
        ("num_heads", np.int64),
        ("num_kv_heads", np.int64),
        ("head_dim", np.int64),
        ("block_size", np.int64),
        ("kv_bytes", np.int64),
        ("head", PROJECTION),
        ("ahead", AHEAD),
        ("epsilon", np.float32),
        ("score_scale", np.float32),
    ],
    align=True,
)
"""Of the whole model; `kv_bytes`: of one number in the KV pool, 4 for float32, 2 for bfloat16."""

LAYER = np.dtype(
    [
        ("attention_norm", np.int64),
        ("qkv", PROJECTION),
        ("qk_norm", np.int64),
        ("output", PROJECTION),
        ("mlp_norm", np.int64),
        ("gate_up", PROJECTION),
        ("down", PROJECTION),
        ("keys", np.int64),
        ("values", np.int64),
        ("window", np.int64),
    ],
    align=True,
)
"""Of one layer: projections, addresses of float32 (0: there is none), how many positions a query sees at most.

Keys and values lie block by block and head by head: keys [head_dim, block_size], values [block_size, head_dim];
in bfloat16 two rows of either stand in pairs.
"""

STEP = np.dtype(
    [
        ("work", np.int64),
        ("num_tokens", np.int64),
        ("positions", np.int64),
        ("slots", np.int64),
        ("tables", np.int64),
        ("table_width", np.int64),
        ("groups", np.int64),
        ("num_groups", np.int64),
        ("sampled_groups", np.int64),
        ("num_sampled_groups", np.int64),
        ("sampled_residual", np.int64),
        ("heads_together", np.int64),
        ("rotations", np.int64),
        ("residual", np.int64),
        ("qkv", np.int64),
        ("attended", np.int64),
        ("gated", np.int64),
        ("normed", np.int64),
        ("scratch", np.int64),
        ("scratch_size", np.int64),
        ("codes", np.int64),
        ("codes_size", np.int64),
        ("norm", np.int64),
        ("sampled", np.int64),
        ("num_sampled", np.int64),
        ("hidden", np.int64),
        ("logits", np.int64),
        ("num_looking", np.int64),
        ("asks_heads", np.int64),
        ("row_starts", np.int64),
        ("token_ids", np.int64),
        ("embedding", np.int64),
        ("stops", np.int64),
        ("num_stops", np.int64),
        ("chosen", np.int64),
        ("taken", np.int64),
        ("said", np.int64),
        ("looking", np.int64),
        ("looking_normed", np.int64),
        ("ahead_logits", np.int64),
        ("embedded", np.int64),
        ("ahead_gated", np.int64),
        ("ahead_states", np.int64),
        ("panels", np.int64),
        ("num_panels", np.int64),
        ("panel_residual", np.int64),
        ("panel_qkv", np.int64),
        ("panel_turns", np.int64),
        ("panel_normed", np.int64),
        ("panel_attended", np.int64),
        ("panel_gated", np.int64),
        ("panel_pieces", np.int64),
        ("pieces_size", np.int64),
        ("panel_room", np.int64),
        ("room_size", np.int64),
        ("has_unit", np.int64),
        ("unit", np.int64),
    ],
    align=True,
)
"""Of one piece of work: addresses of int64 (positions, slots, block tables, groups) and of float32.

`groups` are neighbouring tokens of one row, as `engine.cpu.attention.attention.GROUP_FIELDS` says, and `heads_together`
is how many key heads a thread takes at a time. Where not all tokens are sampled, the last layer has the
`sampled_groups` of those that are go on alone, in `sampled_residual`.

LAYERS_WORK, all layers of a step: `rotations` are cosine and sine in turn, [tokens, head_dim]; `normed` and `scratch`
hold a part for each thread, the latter `scratch_size` numbers, as `codes` does, `codes_size` bytes for rounded inputs;
`hidden` is where the normed states of the `sampled` tokens go, `logits` their logits, unless that is 0. LOGITS_WORK:
the logits of `hidden`. AHEAD_WORK: the logits [tokens, heads, vocabulary] of the tokens behind those that were chosen,
whose embeddings are `embedded`.

Where `num_looking` is not 0, LAYERS_WORK asks the heads in the same go, behind so many rows whose sampled tokens, each
row's drafts among them, begin at `row_starts` of all that are sampled. `taken` becomes the number of each row's right
drafts, -1 of one whose logits are no numbers, and nothing is said of rows behind it; `chosen` the likeliest token
behind them, and `said` [2, rows, heads] the tokens and kinds that heads see behind that; -1 where nobody is asked, for
all that is chosen is among the `stops` or one is no number. Without `asks_heads` tokens are chosen and nothing is said
behind them: the first of `said` becomes 0 then. `looking` [rows, hidden], `looking_normed` with a part for each thread,
`embedded` and `ahead_logits` are room for it.

PROMPTS_WORK, all layers of a step's prompts, whose tokens stand as before: `panels` are up to 64 neighbouring tokens of
one row: first token, number, row, how many lanes are computed. Residual, queries with keys and values, and rotations
(`panel_turns`) have a part for each panel, what stands behind them one for each thread; sizes are in bytes.
`has_unit`: whether the matrix unit is used, and `unit` is where its configuration stands.
"""
LAYERS_WORK, LOGITS_WORK, AHEAD_WORK, PROMPTS_WORK = range(4)

ROUNDS = np.dtype(
    [
        ("num_left", np.int64),
        ("num_done", np.int64),
        ("since_ns", np.int64),
        ("deadline_ns", np.int64),
        ("longest_ns", np.int64),
        ("num_rows", np.int64),
        ("rows", np.int64),
        ("numbers", np.int64),
        ("stops", np.int64),
        ("num_stops", np.int64),
        ("texts", np.int64),
        ("capacity", np.int64),
        ("found_tokens", np.int64),
        ("found_kinds", np.int64),
        ("ends", np.int64),
        ("most_drafts", np.int64),
        ("most_tokens", np.int64),
        ("guesses", np.int64),
        ("turns", np.int64),
        ("limits", np.int64),
        ("costs", np.int64),
        ("counts", np.int64),
        ("log", np.int64),
        ("memory_keys", np.int64),
        ("memory_values", np.int64),
        ("memory_size", np.int64),
        ("trials", np.int64),
        ("chances", np.int64),
        ("num_kinds", np.int64),
        ("kinds", np.int64),
        ("num_listed", np.int64),
        ("head_kind", np.int64),
        ("token_ids", np.int64),
        ("positions", np.int64),
        ("slots", np.int64),
        ("groups", np.int64),
        ("sampled", np.int64),
        ("rotations", np.int64),
        ("hidden", np.int64),
        ("logits", np.int64),
        ("decay", np.float64),
    ],
    align=True,
)
"""Of rounds that follow a step in the same go, each verifying what heads and lookup say behind the one before.

`num_left`: rounds that are still to be taken over, the step itself being the first; 0: there are no further ones. None
is begun when `longest_ns` have passed since the step itself was over. Without `guesses` each says one token of each
row. Of each row: `rows` [rows, 6] as `engine.cpu.multi_step.ngram.look_ahead` reads them, `numbers` [rows, 3], and
`limits` [rows, 4]: which one of the step's rows it is, how long its text may get, up to which length drafts
are made, and drafts that were verified behind the step itself. `stops` are the tokens that end each row's text, row
after row.
`costs` float64 [4] as `engine.cpu.multi_step.ngram.choose` reads them. `texts` [rows, capacity] become the texts with
all that was said. `found_tokens`, `found_kinds` [rows, most_drafts], `ends` [rows, 2] and `counts` [rows] hold the
guesses of the round under way. `log` [rounds, 2]: nanoseconds, and drafts that were verified. What stands behind
`turns`, the rotations of every position, serves all rounds: memory and kinds as lookup knows them, what heads say first
(`head_kind`), and room for a round's tokens."""

GENERATION, NUM_INSIDE, NUM_AWAKE, IS_CLOSED = 0, LINE, 2 * LINE, 3 * LINE
"""Where in a team's memory stand: the number of the piece of work (odd: open), how many take part, how many look, and
whether helpers are to go home."""
CONTROL_BYTES = 4 * LINE

IS_RUNG, SEMAPHORE = 0, 8
"""Where in a helper's bell stand: whether it was rung and not heard yet, and what the helper sleeps on."""
BELL_BYTES = LINE
