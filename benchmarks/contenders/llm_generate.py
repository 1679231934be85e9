"""`LLM.generate`, one call for all prompts: what vLLM's documentation shows for offline work."""

import time

from benchmarks.contenders.kernels import register_ours
from benchmarks.contenders.task import (
    STARTED_S,
    Measured,
    read_task,
    sampling_fields,
    write_measured,
)


def main() -> None:
    """Load, generate, write the figures. Nothing is written to storage within the clock."""
    from vllm import LLM, SamplingParams
    from vllm.sampling_params import StructuredOutputsParams

    task = read_task()
    register_ours()
    llm = LLM(**{"model": task.model, **task.engine})
    ready_s = time.monotonic()
    choice = StructuredOutputsParams(choice=task.choices) if task.choices else None
    params = [
        SamplingParams(**sampling_fields(task, prompt), structured_outputs=choice)
        for prompt in task.prompts
    ]
    outputs = llm.generate([prompt.text for prompt in task.prompts], params)
    ended_s = time.monotonic()
    rows = [prompt.row for prompt in task.prompts]
    write_measured(
        task,
        Measured(
            load_s=ready_s - STARTED_S,
            seconds=ended_s - ready_s,
            num_prompt_tokens=sum(len(one.prompt_token_ids or ()) for one in outputs),
            num_cached_tokens=sum(one.num_cached_tokens or 0 for one in outputs),
            num_output_tokens=sum(len(one.outputs[0].token_ids) for one in outputs),
            answers=dict(zip(rows, (one.outputs[0].text for one in outputs), strict=True)),
        ),
    )


if __name__ == "__main__":
    main()
