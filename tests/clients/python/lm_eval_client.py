"""lm-eval: a task of its own data, generated over chat completions and over completions."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from cells import KEY, MODEL, V1, cell, run
from programs import ran

TASK = """
task: sums
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
output_type: generate_until
test_split: test
doc_to_text: question
doc_to_target: answer
generation_kwargs: {{until: ["\\n"], max_gen_toks: 8}}
metric_list: [{{metric: exact_match}}]
"""


def _evaluated(kind: str, endpoint: str, *options: str) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = folder / "sums.jsonl"
        data.write_text("".join(json.dumps({"question": f"{i} + 1 =", "answer": str(i + 1)}) + "\n" for i in range(3)))
        (folder / "sums.yaml").write_text(TASK.format(data=data))
        arguments = f"model={MODEL},base_url={V1}/{endpoint},num_concurrent=1,max_retries=1,tokenized_requests=False"
        arguments += ",tokenizer_backend=None"
        command = ["lm_eval", "run", "--model", kind, "--model_args", arguments, "--tasks", "sums", *options]
        output = ran(
            [*command, "--include_path", name],
            folder,
            {"OPENAI_API_KEY": KEY, "HF_HUB_OFFLINE": "1"},
        )
    assert "exact_match" in output, output[-2000:]


@cell("chat")
def chat() -> None:
    """Generation over chat completions."""
    _evaluated("local-chat-completions", "chat/completions", "--apply_chat_template")


@cell("completions")
def completions() -> None:
    """Generation over completions."""
    _evaluated("local-completions", "completions")


run()
