"""transformers' `generate` with static batches, as a careful user writes it.

Sorted by how long they will take, so that a batch pads little; left padding; batches of 32. A
batch ends with its longest answer. The dtype is the task's `engine["dtype"]`.
"""

import time
from typing import Any

from benchmarks.contenders.task import (
    STARTED_S,
    Measured,
    Prompt,
    Task,
    read_task,
    write_measured,
)

BATCH_SIZE = 32


def main() -> None:
    """Load, answer batch after batch, write the figures."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    task = read_task()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = AutoTokenizer.from_pretrained(task.model, padding_side="left")
    dtype = task.engine["dtype"]
    model = AutoModelForCausalLM.from_pretrained(task.model, dtype=dtype).to(device).eval()
    ready_s = time.monotonic()
    num_prompt, num_output, answers = 0, 0, {}
    for prompts in _batches(task, tokenizer):
        texts = [prompt.text for prompt in prompts]
        inputs = tokenizer(texts, return_tensors="pt", padding=True, add_special_tokens=False)
        num_prompt += int(inputs["attention_mask"].sum())
        longest = max(prompt.max_tokens for prompt in prompts)
        with torch.inference_mode():
            made = model.generate(
                **inputs.to(device),
                max_new_tokens=longest,
                min_new_tokens=longest if task.is_fixed_length else None,
                do_sample=False,
                pad_token_id=tokenizer.eos_token_id,
            )
        for prompt, tokens in zip(
            prompts, made[:, inputs["input_ids"].shape[1] :].tolist(), strict=True
        ):
            wanted = _wanted(task, prompt, tokens, tokenizer.eos_token_id)
            num_output += len(wanted)
            answers[prompt.row] = tokenizer.decode(wanted, skip_special_tokens=True)
    ended_s = time.monotonic()
    write_measured(
        task,
        Measured(
            load_s=ready_s - STARTED_S,
            seconds=ended_s - ready_s,
            num_prompt_tokens=num_prompt,
            num_cached_tokens=0,
            num_output_tokens=num_output,
            answers=answers,
        ),
    )


def _batches(task: Task, tokenizer: Any) -> list[list[Prompt]]:  # noqa: ANN401 (transformers')
    """Return the prompts in batches of like length: of the answer where it is known."""

    def length(prompt: Prompt) -> tuple[int, int]:
        num_prompt = len(tokenizer(prompt.text, add_special_tokens=False)["input_ids"])
        return (prompt.max_tokens if task.is_fixed_length else 0, num_prompt)

    prompts = sorted(task.prompts, key=length, reverse=True)
    return [prompts[i : i + BATCH_SIZE] for i in range(0, len(prompts), BATCH_SIZE)]


def _wanted(task: Task, prompt: Prompt, tokens: list[int], end: int) -> list[int]:
    """Return the tokens that were asked for, without what fills the batch up."""
    if task.is_fixed_length:
        return tokens[: prompt.max_tokens]
    return tokens[: tokens.index(end) + 1] if end in tokens else tokens


if __name__ == "__main__":
    main()
