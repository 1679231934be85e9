"""What is measured: rows, the job that promptmill is given, and the same work as single asks.

Every contender answers the same rows. promptmill reads them with a job file; the others are
given one ask per answer, as somebody would write who calls vLLM in a loop. W1, W2, W3 and W5
need public test sets that are not part of this project: folder `../shared/data`, or the one
that PROMPTMILL_BENCH_DATA names.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from benchmarks.data_sets import data_set, ticket_words


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One answer that is wanted: chat messages, and at most `max_tokens` output tokens.

    `row` is the id of the row that it belongs to. `expected` is the right answer where there
    is one.
    """

    row: str
    user: str
    max_tokens: int
    system: str | None = None
    expected: str | None = None

    def messages(self) -> list[dict[str, str]]:
        """Return the chat messages."""
        said = [("system", self.system), ("user", self.user)]
        return [{"role": role, "content": text} for role, text in said if text is not None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Rows to be answered, for promptmill (`table` and `job`) and for the others (`asks`).

    `job` lacks input, model and output, `output` is the answers' shape in a job file. With
    `is_fixed_length` every answer has exactly `max_tokens` tokens. With `choices` an answer is
    one of them, by vLLM's structured outputs where a contender has them. `is_same_prompt`:
    promptmill's prompts are the asks' prompts, token by token. `num_repeated` rows say what an
    earlier row says.
    """

    name: str
    title: str
    table: pa.Table
    job: dict[str, Any]
    asks: tuple[Ask, ...]
    is_fixed_length: bool = False
    is_same_prompt: bool = True
    choices: tuple[str, ...] = ()
    num_repeated: int = 0
    output: dict[str, Any] = field(default_factory=dict)


def summaries(num_rows: int) -> Workload:
    """Return W1: one-sentence summaries of DialogSum's dev set, at most 64 tokens each."""
    return _summaries("w1", f"summarize {num_rows} dialogues (DialogSum dev)", num_rows)


def repeated_summaries(num_rows: int) -> Workload:
    """Return W5: W1 in which one row of five says again what an earlier row says."""
    title = f"summarize {num_rows} dialogues, 20 % of them repeated (DialogSum dev)"
    return _summaries("w5", title, num_rows, num_repeated=num_rows // 5)


def labels(num_rows: int) -> Workload:
    """Return W2: one of four labels for news texts (AG News test set), the text first."""
    choices = ("World", "Sports", "Business", "Sci/Tech")
    question = "Which section is this news in: World, Sports, Business or Sci/Tech?"
    news = data_set("ag_news.parquet", num_rows)
    asks = [
        Ask(
            row=row["id"],
            user=f"{row['text']}\n\n{question} Answer with one of the four.",
            max_tokens=8,
            expected=row["gold_label"],
        )
        for row in news
    ]
    return Workload(
        name="w2",
        title=f"label {num_rows} news texts (AG News test)",
        table=_table([{"id": row["id"], "text": row["text"]} for row in news]),
        job={
            "prompt": {"user": f"{{{{ text }}}}\n\n{question} Answer with one of the four."},
        },
        output={"labels": {"choices": list(choices)}},
        asks=tuple(asks),
        choices=choices,
    )


QUESTIONS = {
    "asks": "Does somebody ask a question?",
    "agree": "Do they agree at the end?",
    "time": "Do they speak about a date or a time?",
    "money": "Do they speak about money?",
    "work": "Do they speak about work?",
    "thanks": "Does somebody say thank you?",
}


def questions(num_rows: int) -> Workload:
    """Return W3: six yes/no questions on each dialogue.

    The others are asked as people ask: the question first, an answer in free text of at most
    16 tokens. promptmill puts the dialogue first and asks for one token.
    """
    dialogues = data_set("dialogsum_dev.parquet", num_rows)
    asks = [
        Ask(
            row=f"{row['id']}/{name}",
            user=f"{question} Answer yes or no.\n\n{row['dialogue']}",
            max_tokens=16,
        )
        for row in dialogues
        for name, question in QUESTIONS.items()
    ]
    return Workload(
        name="w3",
        title=f"six yes/no questions on each of {num_rows} dialogues (DialogSum dev)",
        table=_table([{"id": row["id"], "dialogue": row["dialogue"]} for row in dialogues]),
        job={
            "prompt": {"user": "{{ dialogue }}\n\n{{ question }} Answer yes or no."},
            "questions": [
                {"name": name, "text": question, "choices": ["yes", "no"]}
                for name, question in QUESTIONS.items()
            ],
        },
        asks=tuple(asks),
        is_same_prompt=False,
    )


def mixed_lengths(num_rows: int) -> Workload:
    """Return W4: prompts and answers of very different, fixed lengths (lognormal).

    About 113 prompt and 38 output tokens on average. The texts are those of the sample
    tickets, cut at a word; where an answer's length is fixed, all contenders do the same work.
    """
    dice = random.Random(11)
    words = ticket_words()
    rows: list[dict[str, object]] = []
    for number in range(num_rows):
        length = max(8, min(400, round(dice.lognormvariate(3.9, 0.6))))
        text = " ".join(next(words) for _ in range(length))
        max_tokens = max(4, min(128, round(dice.lognormvariate(3.46, 0.6))))
        rows.append({"id": f"mixed-{number:05d}", "text": text, "max_tokens": max_tokens})
    return Workload(
        name="w4",
        title=f"{num_rows} prompts of mixed lengths, output lengths fixed",
        table=_table(rows),
        job={
            "prompt": {"user": "Continue: {{ text }}"},
            "sampling": {
                "preset": "precise",
                "max_tokens": 128,
                "ignore_eos": True,
                "columns": {"max_tokens": "max_tokens"},
            },
        },
        asks=tuple(
            Ask(
                row=str(row["id"]),
                user=f"Continue: {row['text']}",
                max_tokens=int(str(row["max_tokens"])),
            )
            for row in rows
        ),
        is_fixed_length=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """How a workload is made, and how many rows take half a minute to one on two cores."""

    make: Callable[[int], Workload]
    num_rows: int


WORKLOADS = {
    "w1": Choice(make=summaries, num_rows=80),
    "w2": Choice(make=labels, num_rows=200),
    "w3": Choice(make=questions, num_rows=20),
    "w4": Choice(make=mixed_lengths, num_rows=96),
    "w5": Choice(make=repeated_summaries, num_rows=100),
}


def _summaries(name: str, title: str, num_rows: int, *, num_repeated: int = 0) -> Workload:
    """Return the summaries of `num_rows` rows, the last `num_repeated` of which are copies."""
    system, task = "You summarize dialogues.", "Summarize this dialogue in one sentence."
    distinct = data_set("dialogsum_dev.parquet", num_rows - num_repeated)
    copies = random.Random(5).sample(distinct, num_repeated)
    rows = distinct + [{**row, "id": f"{row['id']}-again"} for row in copies]
    asks = [
        Ask(row=row["id"], system=system, user=f"{task}\n\n{row['dialogue']}", max_tokens=64)
        for row in rows
    ]
    return Workload(
        name=name,
        title=title,
        table=_table([{"id": row["id"], "dialogue": row["dialogue"]} for row in rows]),
        job={
            "prompt": {"system": system, "user": f"{task}\n\n{{{{ dialogue }}}}"},
            "sampling": {"preset": "precise", "max_tokens": 64},
        },
        asks=tuple(asks),
        num_repeated=num_repeated,
    )


def _table(rows: list[dict[str, object]] | list[dict[str, str]]) -> pa.Table:
    return pa.Table.from_pylist(rows)
