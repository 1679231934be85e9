"""The bare engine: vLLM's own loop with promptmill's settings, order and environment.

What is measured is what no pipeline can beat with these settings: the prompts are tokens
already, no text is made of the answers, nothing is read, written or sent.
"""

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
    """Load, add every request longest first, step until all are answered."""
    from tokenizers import Tokenizer
    from vllm import SamplingParams
    from vllm.engine.arg_utils import EngineArgs
    from vllm.sampling_params import RequestOutputKind
    from vllm.v1.engine.llm_engine import LLMEngine

    task = read_task()
    register_ours()
    engine = LLMEngine.from_engine_args(EngineArgs(**{"model": task.model, **task.engine}))
    tokenizer = Tokenizer.from_file(f"{task.model}/tokenizer.json")
    ids = [tokenizer.encode(one.text, add_special_tokens=False).ids for one in task.prompts]
    asked = list(zip(task.prompts, ids, strict=True))
    asked.sort(key=lambda ask: len(ask[1]) + ask[0].max_tokens, reverse=True)
    ready_s = time.monotonic()
    for prompt, token_ids in asked:
        params = SamplingParams(
            **sampling_fields(task, prompt),
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        engine.add_request(prompt.row, {"type": "token", "prompt_token_ids": token_ids}, params)
    num_steps, outputs = 0, []
    while engine.has_unfinished_requests():
        outputs += engine.step()
        num_steps += 1
    ended_s = time.monotonic()
    write_measured(
        task,
        Measured(
            load_s=ready_s - STARTED_S,
            seconds=ended_s - ready_s,
            num_prompt_tokens=sum(map(len, ids)),
            num_cached_tokens=sum(one.num_cached_tokens or 0 for one in outputs),
            num_output_tokens=sum(len(one.outputs[0].token_ids) for one in outputs),
            answers=dict.fromkeys((one.request_id for one in outputs), ""),
            details={"num_steps": num_steps},
        ),
    )


if __name__ == "__main__":
    main()
