"""Ray Data: `map_batches` over an actor that holds `LLM`, batches of 64 rows.

One actor with all cores (or the GPU), as one device allows. The clock starts when the actor
has loaded its model and ends when the last row is out; reading and Ray's own work are in it.
"""

import time
from pathlib import Path
from typing import Any

from benchmarks.contenders.task import (
    STARTED_S,
    Measured,
    read_task,
    sampling_fields,
    write_measured,
)

BATCH_SIZE = 64
NUM_READING_CORES = 2
"""Ray counts cores, it does not bind them: without more of them nothing could be read while the
actor has all there are."""


class Predictor:
    """An actor that answers batches with one call of `LLM.generate` each."""

    def __init__(self, model: str, engine: dict[str, Any], choices: list[str]) -> None:
        """Load the model."""
        from vllm import LLM

        self._llm = LLM(model=model, **engine)
        self._choices = choices
        self._ready_s = time.monotonic()

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """Return the batch with its answers and token counts."""
        from vllm import SamplingParams
        from vllm.sampling_params import StructuredOutputsParams

        choice = StructuredOutputsParams(choice=self._choices) if self._choices else None
        params = [
            SamplingParams(
                temperature=0.0,
                max_tokens=int(max_tokens),
                ignore_eos=bool(ignore_eos),
                structured_outputs=choice,
            )
            for max_tokens, ignore_eos in zip(batch["max_tokens"], batch["ignore_eos"], strict=True)
        ]
        outputs = self._llm.generate(list(batch["text"]), params)
        return {
            "row": batch["row"],
            "answer": [one.outputs[0].text for one in outputs],
            "num_prompt": [len(one.prompt_token_ids or ()) for one in outputs],
            "num_cached": [one.num_cached_tokens or 0 for one in outputs],
            "num_output": [len(one.outputs[0].token_ids) for one in outputs],
            "ready_s": [self._ready_s] * len(outputs),
        }


def main() -> None:
    """Write the rows as Parquet, map them over the actor, write the figures."""
    import os

    import pyarrow as pa
    import pyarrow.parquet as pq
    import ray
    import torch

    task = read_task()
    rows = Path(task.folder, "rows.parquet")
    columns = [
        {"row": one.row, "text": one.text, **sampling_fields(task, one)} for one in task.prompts
    ]
    pq.write_table(pa.Table.from_pylist(columns), rows)
    num_cores = len(os.sched_getaffinity(0))
    ray.init(num_cpus=num_cores + NUM_READING_CORES, include_dashboard=False)
    ray.data.DataContext.get_current().execution_options.preserve_order = True
    answered = ray.data.read_parquet(str(rows)).map_batches(
        Predictor,
        fn_constructor_args=(task.model, task.engine, task.choices),
        batch_size=BATCH_SIZE,
        concurrency=1,
        num_cpus=num_cores,
        num_gpus=1 if torch.cuda.is_available() else None,
    )
    out = answered.take_all()
    ended_s = time.monotonic()
    ready_s = out[0]["ready_s"]  # the same clock for all processes of a machine
    write_measured(
        task,
        Measured(
            load_s=ready_s - STARTED_S,
            seconds=ended_s - ready_s,
            num_prompt_tokens=int(sum(one["num_prompt"] for one in out)),
            num_cached_tokens=int(sum(one["num_cached"] for one in out)),
            num_output_tokens=int(sum(one["num_output"] for one in out)),
            answers={str(one["row"]): str(one["answer"]) for one in out},
        ),
    )


if __name__ == "__main__":
    main()
