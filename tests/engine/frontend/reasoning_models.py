"""Model folders without weights whose templates and tokens have the published forms of reasoning families."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tokenizers import AddedToken

from engine.frontend.tools.tool_format import (
    DEEPSEEK_CALL,
    DEEPSEEK_CALL_END,
    DEEPSEEK_CALLS,
    DEEPSEEK_SEPARATOR,
    HARMONY_MARKERS,
)
from tests.engine.frontend.tiny_model import END, make_tokenizer

_TURNS: Final = (
    "{%- for m in messages %}{{- '<|im_start|>' + m.role + '\\n' }}"
    "{%- if m.role == 'assistant' and m.reasoning_content %}"
    "{{- '<think>\\n' + m.reasoning_content.strip('\\n') + '\\n</think>\\n\\n' }}{%- endif %}"
    "{{- m.content + '<|im_end|>\\n' }}{%- endfor %}"
)
_START: Final = "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
QWEN3: Final = (
    "{%- if tools %}{{- '# Tools <tool_call>\\n' }}{%- endif %}" + _TURNS + _START +
    "{%- if enable_thinking is defined and enable_thinking is false %}"
    "{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}{%- endif %}"
)  # fmt: skip
QWEN3_CODER: Final = QWEN3.replace("<tool_call>", "<tool_call> <function=name> <parameter=key>")
SMOLLM3: Final = (
    "{%- if enable_thinking is not defined %}{%- set enable_thinking = true %}{%- endif %}"
    "{%- set mode = '/think' if enable_thinking else '/no_think' %}"
    "{%- if messages[0].role == 'system' and '/no_think' in messages[0].content %}"
    "{%- set mode = '/no_think' %}{%- endif %}"
    "{{- '<|im_start|>system\\nReasoning Mode: ' + mode + '\\n' }}"
    "{%- if xml_tools or tools %}{{- '<tool_call>' }}{%- endif %}{{- '<|im_end|>\\n' }}" + _TURNS + _START +
    "{%- if mode == '/no_think' %}{{- '<think>\\n\\n</think>\\n' }}{%- endif %}{%- endif %}"
)  # fmt: skip
SYSTEM_SWITCH: Final = (
    "{%- set off = messages[0].role == 'system' and '/no_think' in messages[0].content %}" + _TURNS + _START +
    "{%- if off %}{{- '<think></think>' }}{%- endif %}{%- endif %}"
)  # fmt: skip
GLM: Final = (
    "{%- if tools %}{{- '<tool_call>name <arg_key>key</arg_key> <arg_value>value</arg_value>' }}{%- endif %}"
    "{%- for m in messages %}{{- '<|' + m.role + '|>\\n' + m.content }}"
    "{%- if m.role == 'user' and enable_thinking is defined and not enable_thinking %}{{- '/nothink' }}{%- endif %}"
    "{%- endfor %}{%- if add_generation_prompt %}{{- '<|assistant|>' }}"
    "{%- if enable_thinking is defined and not enable_thinking %}{{- '\\n<think></think>' }}{%- endif %}{%- endif %}"
)
DEEPSEEK_R1: Final = (
    "{%- for m in messages %}{{- '<｜' + m.role + '｜>' }}"
    "{{- m.content.split('</think>')[-1] }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<｜Assistant｜><think>\\n' }}{%- endif %}"
)
DEEPSEEK_V31: Final = (
    "{%- if not thinking is defined %}{%- set thinking = false %}{%- endif %}"
    "{%- if tools %}{{- 'Tools: <｜tool▁calls▁begin｜>' }}{%- endif %}"
    "{%- for m in messages %}{{- '<｜' + m.role + '｜>' + m.content }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<｜Assistant｜>' + ('<think>' if thinking else '</think>') }}{%- endif %}"
)
GRANITE: Final = (
    "{%- if tools %}{{- 'Answer with <|tool_call|> and a list.' }}{%- endif %}"
    "{%- if thinking %}{{- 'Think in <think></think>, answer in <response></response>.' }}{%- endif %}"
    "{%- for m in messages %}{{- '<|start_of_role|>' + m.role + '<|end_of_role|>' + m.content }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|start_of_role|>assistant<|end_of_role|>' }}{%- endif %}"
)
GPT_OSS: Final = (
    "{%- if reasoning_effort is not defined %}{%- set reasoning_effort = 'medium' %}{%- endif %}"
    "{{- '<|start|>system<|message|>Reasoning: ' + reasoning_effort + '\\n' }}"
    "{{- 'Channels: analysis, commentary, final.<|end|>' }}"
    "{%- if tools %}{{- '<|start|>developer<|message|>namespace functions<|end|>' }}{%- endif %}"
    "{%- for m in messages %}{%- if m.role == 'assistant' %}"
    "{%- if m.tool_calls and m.thinking and m.content %}{{- raise_exception('both') }}{%- endif %}"
    "{%- if m.thinking %}{{- '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' }}{%- endif %}"
    "{%- if m.content %}{{- '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|end|>' }}{%- endif %}"
    "{%- else %}{{- '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|start|>assistant' }}{%- endif %}"
)
_THINK: Final = ("<think>", "</think>")
_XML: Final = (*_THINK, "<tool_call>", "</tool_call>")
_DEEPSEEK: Final = (*_THINK, *DEEPSEEK_CALLS, DEEPSEEK_CALL, DEEPSEEK_CALL_END, DEEPSEEK_SEPARATOR)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningModel:
    """Template of a family and the tokens that its vocabulary has beside ordinary text."""

    template: str
    tokens: tuple[str, ...] = ()
    special: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    """Special tokens that end an answer, beside the usual one."""

    def write(self, folder: Path) -> Path:
        """Fill a folder with what the front reads of a model."""
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer = make_tokenizer()
        tokenizer.add_tokens([AddedToken(text, normalized=False) for text in self.tokens])
        tokenizer.add_special_tokens([AddedToken(text, normalized=False) for text in self.special])
        tokenizer.save(str(folder / "tokenizer.json"))
        config = {"eos_token": "<|im_end|>", "chat_template": self.template}
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        ends = [END, *(tokenizer.token_to_id(text) for text in self.ends)]
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
        return folder


MODELS: Final = {
    "qwen3": ReasoningModel(template=QWEN3, tokens=_XML),
    "qwen3 as text": ReasoningModel(template=QWEN3),
    "qwen3_coder": ReasoningModel(template=QWEN3_CODER, tokens=_XML),
    "smollm3": ReasoningModel(template=SMOLLM3, tokens=_XML),
    "system switch": ReasoningModel(template=SYSTEM_SWITCH, tokens=_THINK),
    "glm": ReasoningModel(template=GLM, tokens=(*_XML, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")),
    "deepseek_r1": ReasoningModel(template=DEEPSEEK_R1, tokens=_THINK),
    "deepseek_v31": ReasoningModel(template=DEEPSEEK_V31, tokens=_DEEPSEEK),
    "granite": ReasoningModel(template=GRANITE, special=("<|tool_call|>",)),
    "gpt_oss": ReasoningModel(template=GPT_OSS, special=HARMONY_MARKERS, ends=("<|call|>", "<|return|>")),
}
