"""Hugging Face names of the tensors in a GGUF file, and how each is read from the file."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from engine.models.gguf.architectures import GgufArchitecture, find_architecture, num_layers
from engine.models.gguf.container import TensorPlace
from engine.models.gguf.parts import GgufModel

_GLOBAL = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
}
"""Modules of a layer, GGUF to Hugging Face, common to all families."""
_LAYER_NAME = re.compile(r"blk\.(\d+)\.(\w+?)(?:\.(\d+))?\.(weight|bias)")
_ANY_LAYER = re.compile(r"blk\.(\d+)\.")
_STATE_NAME = re.compile(r"blk\.(\d+)\.(ssm_a|ssm_dt\.bias)")
_STATE = {"ssm_a": "A_log", "ssm_dt.bias": "dt_bias"}
"""Tensors of a gated delta net whose names do not end as those of modules do."""
_PLAIN_NORM = "ssm_norm.weight"
"""End of the names of norms to which the converter adds nothing."""
_EXPERT_MODULES = ("ffn_gate", "ffn_up", "ffn_down")
_ROPE_FACTORS = re.compile(r"rope_(freqs|factors_long|factors_short)\.weight")


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorSlice:
    """One Hugging Face tensor as a part of a GGUF tensor."""

    source: str
    """Name in the file."""
    shape: tuple[int, ...]
    first_row: int = 0
    """First row of the part, when the file's tensor is seen as a matrix."""
    num_permuted_heads: int = 0
    """Number of heads whose two halves the converter interleaved; 0: none."""
    offset: float = 0.0
    """Number that the converter added to the weights."""
    is_rate: bool = False
    """True if the file holds the negated exponential of the numbers."""


def name_tensors(model: GgufModel) -> dict[str, TensorSlice]:
    """Return the model's tensors by their Hugging Face names; unknown ones keep the names of the file.

    Raises:
        GgufError: The architecture is not supported.
    """
    arch, row = find_architecture(model)
    num_heads = model.integer(f"{arch}.attention.head_count")
    num_kv_heads = model.integer(f"{arch}.attention.head_count_kv", num_heads)
    heads = {"attn_q": num_heads, "attn_k": num_kv_heads} if row.has_permuted_heads else {}
    found: dict[str, TensorSlice] = {}
    last = num_layers(model, arch) if model.has(f"{arch}.nextn_predict_layers") else None
    for name, place in model.tensors.items():
        # These are part of config.json.
        if not _ROPE_FACTORS.fullmatch(name) and not _is_behind(name, last):
            found.update(_slices(name, place, row, heads))
    return found


def _is_behind(name: str, num_layers: int | None) -> bool:
    """Return whether a tensor belongs to a layer behind the last one; None: there are no such layers."""
    match = None if num_layers is None else _ANY_LAYER.match(name)
    return match is not None and num_layers is not None and int(match[1]) >= num_layers


def _slices(
    name: str, place: TensorPlace, row: GgufArchitecture, heads: dict[str, int]
) -> Iterator[tuple[str, TensorSlice]]:
    offset = row.norm_offset if "norm" in name and not name.endswith(_PLAIN_NORM) else 0.0
    state = _STATE_NAME.fullmatch(name)
    if state is not None:
        hf_name = f"model.layers.{state[1]}.linear_attn.{_STATE[state[2]]}"
        yield hf_name, TensorSlice(source=name, shape=place.shape, is_rate=state[2] == "ssm_a")
        return
    match = _LAYER_NAME.fullmatch(name)
    if match is None:
        module, _, kind = name.rpartition(".")
        yield f"{_GLOBAL.get(module, module)}.{kind}", TensorSlice(source=name, shape=place.shape, offset=offset)
        return
    layer, module, expert, kind = match.groups()
    prefix = f"model.layers.{layer}"
    if row.experts is not None and module == "ffn_gate_inp":
        yield f"{prefix}.{row.experts[0]}.{row.router}.{kind}", TensorSlice(source=name, shape=place.shape)
        return
    if row.experts is not None and (expert is not None or module.endswith("_exps")):
        yield from _expert_slices(name, place, row.experts, prefix, (module.removesuffix("_exps"), expert, kind))
        return
    if module == "attn_sinks":
        yield f"{prefix}.self_attn.sinks", TensorSlice(source=name, shape=place.shape)
        return
    if module == "ssm_conv1d" and len(place.shape) == 2:
        place = replace(place, shape=(place.shape[0], 1, place.shape[1]))
    shape = (1, *place.shape) if module == "ffn_gate_inp_shexp" and len(place.shape) == 1 else place.shape
    target = row.renamed.get(module, _LAYER.get(module))
    yield (
        name if target is None or expert is not None else f"{prefix}.{target}.{kind}",
        TensorSlice(source=name, shape=shape, num_permuted_heads=heads.get(module, 0), offset=offset),
    )


def _expert_slices(
    name: str,
    place: TensorPlace,
    experts: tuple[str, str, str, str],
    prefix: str,
    found: tuple[str, str | None, str],
) -> Iterator[tuple[str, TensorSlice]]:
    """Return the projections of single experts: the first files had a tensor for each, later ones one for all."""
    module, expert, kind = found
    if module == "ffn_gate_up" and expert is None and kind == "weight" and len(place.shape) == 3:
        num_experts, num_rows, num_in = place.shape
        half = num_rows // 2
        for index, (part, projection) in itertools.product(range(num_experts), enumerate(experts[1:3])):
            target = f"{prefix}.{experts[0]}.experts.{index}.{projection}.{kind}"
            yield target, TensorSlice(source=name, shape=(half, num_in), first_row=index * num_rows + part * half)
        return
    num_axes = 3 if kind == "weight" else 2
    if module not in _EXPERT_MODULES or (expert is None and len(place.shape) != num_axes):
        yield name, TensorSlice(source=name, shape=place.shape)
        return
    projection = experts[1 + _EXPERT_MODULES.index(module)]
    if expert is not None:
        target = f"{prefix}.{experts[0]}.experts.{expert}.{projection}.{kind}"
        yield target, TensorSlice(source=name, shape=place.shape)
        return
    num_experts, *shape = place.shape
    num_rows = shape[0] if kind == "weight" else 1
    for index in range(num_experts):
        target = f"{prefix}.{experts[0]}.experts.{index}.{projection}.{kind}"
        yield target, TensorSlice(source=name, shape=tuple(shape), first_row=index * num_rows)
