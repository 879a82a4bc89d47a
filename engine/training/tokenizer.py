"""Train the shared byte-level BPE tokenizer with its chat template: `python -m engine.training.tokenizer DIR`."""

import argparse
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from engine.training.data.generator import MIXES, stream

if TYPE_CHECKING:
    from tokenizers import Tokenizer

VOCAB_SIZE = 2048
MAX_CONTEXT = 4096
END_OF_TEXT, IM_START, IM_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
SPECIAL_TOKENS = (END_OF_TEXT, IM_START, IM_END)
# Letters with at most one mark before them, single digits, punctuation, white space.
SPLIT_PATTERN = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CHAT_TEMPLATE = """\
{%- set system = messages[0].content if messages and messages[0].role == 'system' else '' -%}
{%- if tools -%}
<|im_start|>system
{{ system + '\\n\\n' if system else '' -}}
# Tools

You may call functions. Their signatures are within <tools></tools>:
<tools>
{%- for tool in tools -%}
{{ '\\n' + (tool | tojson) }}
{%- endfor -%}
{{ '\\n' }}</tools>

To call one, answer with a JSON object within <tool_call></tool_call>:
<tool_call>
{"name": "...", "arguments": {}}
</tool_call><|im_end|>
{% elif system -%}
<|im_start|>system
{{ system }}<|im_end|>
{% endif -%}
{%- for message in messages -%}
{%- if message.role == 'system' and loop.first -%}
{%- elif message.role == 'tool' -%}
<|im_start|>user
<tool_response>
{{ message.content }}
</tool_response><|im_end|>
{% elif message.role == 'assistant' -%}
<|im_start|>assistant
{{ message.content or '' }}
{%- for call in message.tool_calls or [] -%}
{%- set function = call.function or call -%}
{%- set arguments = function.arguments -%}
{{- '\\n' if message.content or not loop.first else '' }}<tool_call>
{"name": {{ function.name | tojson }}, "arguments": {{ arguments if arguments is string else arguments | tojson }}}
</tool_call>
{%- endfor -%}
<|im_end|>
{% else -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
<|im_start|>assistant
{% endif -%}
"""


def train_tokenizer(num_examples: int = 30_000, seed: int = 1) -> "Tokenizer":
    """Return a tokenizer trained on generated conversations of the training split."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT_PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE - len(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(num_examples, seed), trainer)
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    return tokenizer


def save_tokenizer(tokenizer: "Tokenizer", folder: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json."""
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": MAX_CONTEXT,
        "bos_token": None,
        "eos_token": IM_END,
        "pad_token": END_OF_TEXT,
        "unk_token": None,
        "add_bos_token": False,
        "clean_up_tokenization_spaces": False,
        "added_tokens_decoder": {
            str(tokenizer.token_to_id(token)): {
                "content": token, "lstrip": False, "normalized": False, "rstrip": False, "single_word": False,
                "special": True,
            }
            for token in SPECIAL_TOKENS
        },
        "chat_template": CHAT_TEMPLATE,
    }  # fmt: skip
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def read_tokenizer(folder: Path) -> "Tokenizer":
    """Load the tokenizer of a model folder."""
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(folder / "tokenizer.json"))


def token_id(tokenizer: "Tokenizer", token: str) -> int:
    """Return the id of a token. Raises ValueError if the vocabulary does not have it."""
    found = tokenizer.token_to_id(token)
    if found is None:
        raise ValueError(f"tokenizer: no token {token!r}; is this the tokenizer of the bundled models?")
    return found


def _texts(num_examples: int, seed: int) -> Iterator[str]:
    for role in ("system", "user", "assistant", "tool"):
        yield "\n".join([role] * 50)
    for example in itertools.islice(stream(seed, "train", MIXES["large"]), num_examples):
        for message in example.messages:
            yield message["content"]
        yield example.answer


def main() -> None:
    """Train the tokenizer and write it to a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    save_tokenizer(train_tokenizer(), parser.parse_args().folder)


if __name__ == "__main__":
    main()
