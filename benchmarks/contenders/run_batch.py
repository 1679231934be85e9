"""`vllm run-batch`: OpenAI's batch file in, one out.

The command's own code, all defaults. It times nothing, so its one function that begins when
the engine is ready (reads the file, asks, writes the answers) is wrapped in a clock.
"""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

from benchmarks.contenders.task import (
    STARTED_S,
    Measured,
    Prompt,
    Task,
    read_task,
    sampling_fields,
    write_measured,
)


def main() -> None:
    """Write the batch file, run the command on it, write the figures."""
    from vllm.entrypoints.launchers import run_batch as command
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    task = read_task()
    asked, answered = Path(task.folder, "asked.jsonl"), Path(task.folder, "answered.jsonl")
    asked.write_text("".join(f"{_line(task, prompt)}\n" for prompt in task.prompts), "utf-8")
    clock: list[float] = []
    timed = command.run_batch

    async def run_batch(*given: Any) -> None:  # noqa: ANN401 (vLLM's own arguments)
        clock.append(time.monotonic())
        await timed(*given)
        clock.append(time.monotonic())

    command.run_batch = run_batch
    parser = command.make_arg_parser(FlexibleArgumentParser())
    arguments = ["-i", str(asked), "-o", str(answered), "--model", task.model]
    for name, value in task.engine.items():
        arguments += [f"--{name.replace('_', '-')}", str(value)]
    asyncio.run(command.main(parser.parse_args(arguments)))
    ready_s, ended_s = clock
    lines = [json.loads(line) for line in answered.read_text("utf-8").splitlines()]
    failed = [line["error"] or line for line in lines if line["response"]["status_code"] != 200]
    if failed:
        raise SystemExit(f"{len(failed)} requests failed, the first: {failed[0]}")
    bodies = {line["custom_id"]: line["response"]["body"] for line in lines}
    write_measured(
        task,
        Measured(
            load_s=ready_s - STARTED_S,
            seconds=ended_s - ready_s,
            num_prompt_tokens=sum(body["usage"]["prompt_tokens"] for body in bodies.values()),
            num_cached_tokens=None,
            num_output_tokens=sum(body["usage"]["completion_tokens"] for body in bodies.values()),
            answers={
                row: body["choices"][0]["message"]["content"] or "" for row, body in bodies.items()
            },
        ),
    )


def _line(task: Task, prompt: Prompt) -> str:
    body: dict[str, Any] = {
        "model": task.model,
        "messages": prompt.messages,
        **sampling_fields(task, prompt),
    }
    if task.choices:
        body["structured_outputs"] = {"choice": task.choices}
    return json.dumps(
        {"custom_id": prompt.row, "method": "POST", "url": "/v1/chat/completions", "body": body}
    )


if __name__ == "__main__":
    main()
