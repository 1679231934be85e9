"""The sample tickets: read whole from `source/`, or composed from what is written there.

A composed ticket is a problem told in one of its three voices, with a part of the details,
attempts and requests that belong to that problem. They are dealt out like cards: what one
ticket on a problem has said, no other one says again.
"""

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

SOURCE = Path(__file__).resolve().parent / "source"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """What a customer wrote, before it has an id and a time."""

    product: str
    category: str
    subject: str
    body: str
    language: str = "en"
    day: int | None = None  # None when it may be dealt to any day


def read_source(name: str) -> Any:  # noqa: ANN401 - the sources differ in shape
    """Return the content of one YAML file of `source/`."""
    return yaml.safe_load((SOURCE / name).read_text(encoding="utf-8"))


def complete_tickets(num_days: int) -> list[Ticket]:
    """Return the tickets that are written out in the sources, replies to threads included."""
    names = ("long.yaml", "languages.yaml", "odd.yaml")
    whole = [Ticket(**row) for name in names for row in read_source(name)]
    short = [
        Ticket(product=product, category=category, subject=subject, body=body)
        for product, category, subject, body in read_source("short.yaml")
    ]
    return whole + short + list(thread_tickets(num_days))


def thread_tickets(num_days: int) -> Iterator[Ticket]:
    """Yield history + reply for each reply; three fall on one day, the rest on the day after."""
    for number, thread in enumerate(read_source("threads.yaml")):
        for place, reply in enumerate(thread["replies"]):
            yield Ticket(
                product=thread["product"],
                category=reply["category"],
                subject=thread["subject"],
                body=f"{thread['history'].rstrip()}\n\n{reply['text'].rstrip()}",
                day=(number + place // 3) % num_days + 1,
            )


def composed_tickets(num_tickets: int, rng: random.Random) -> list[Ticket]:
    """Return `num_tickets` tickets: each problem told at least twice, no telling used twice.

    Raises:
        ValueError: the problems in the sources are too many or too few for that number.
    """
    problems = [
        (path.stem.capitalize(), problem)
        for path in sorted((SOURCE / "problems").glob("*.yaml"))
        for problem in read_source(f"problems/{path.name}")
    ]
    num_notes = num_tickets - 2 * len(problems)
    if not 0 <= num_notes <= len(problems):
        raise ValueError(
            f"{num_tickets} tickets from {len(problems)} problems: each is told two or three "
            f"times, so {2 * len(problems)} to {3 * len(problems)} are possible; "
            "change the number of rows per day"
        )
    with_note = set(rng.sample(range(len(problems)), num_notes))
    writer = Writer(rng)
    return [
        Ticket(product=product, category=problem["category"], subject=subject, body=body)
        for number, (product, problem) in enumerate(problems)
        for subject, body in zip(
            problem["subjects"],
            bodies_of(problem, writer, rng, has_note=number in with_note),
            strict=False,  # without a note the third subject stays unused
        )
    ]


def bodies_of(
    problem: dict[str, Any], writer: "Writer", rng: random.Random, *, has_note: bool
) -> list[str]:
    """Return two full mails on one problem and, if asked for, a short note on it."""
    facts, tried, asks = (
        rng.sample(problem[key], len(problem[key])) for key in ("details", "tried", "asks")
    )
    first, second, third = problem["tellings"]
    rest = [texts.pop() for texts in (facts, asks) if has_note and len(texts) > 2]
    half = (len(facts) + 1) // 2
    bodies = [
        writer.mail(first, facts[:half], tried[:1], asks[0]),
        writer.mail(second, facts[half:], tried[1:], asks[1]),
    ]
    extras = [text for text in rest if rng.random() < 0.55]
    return [*bodies, writer.note(third, extras)] if has_note else bodies


class Writer:
    """Puts a problem into the frame of a mail; no phrase comes again before all have come once."""

    def __init__(self, rng: random.Random) -> None:
        frames = read_source("frames.yaml")
        people, firms = frames.pop("people"), itertools.cycle(frames.pop("firms"))
        self._rng = rng
        self._senders = self._dealt([(person, next(firms)) for person in people])
        self._phrases = {name: self._dealt(phrases) for name, phrases in frames.items()}

    def mail(self, telling: str, facts: list[str], tried: list[str], ask: str) -> str:
        """Return a full mail: most often a letter, else one block of text, else a list."""
        layouts, weights = [self._letter, self._block, self._list], [6, 2, 2]
        if any("\n" in text for text in facts):  # an extract of a log can't be a point of a list
            layouts, weights = layouts[:2], weights[:2]
        (layout,) = self._rng.choices(layouts, weights)
        return paragraphs([*layout(telling, facts, tried, ask), self._say("footers", 0.06)])

    def note(self, telling: str, extras: list[str]) -> str:
        """Return a message as sent from a phone: no greeting, seldom a name."""
        name = self._signature() if self._rng.random() < 0.25 else ""
        return paragraphs([telling, joined(extras), name, self._say("footers", 0.12)])

    def _letter(self, telling: str, facts: list[str], tried: list[str], ask: str) -> list[str]:
        facts = [self._say("detail_leads") + text for text in facts[:1]] + facts[1:]
        tried = [self._say("tried_leads") + text for text in tried[:1]] + tried[1:]
        middle = facts + tried if self._rng.random() < 0.6 else tried + facts
        return [
            self._say("greetings", 0.8),
            f"{self._say('openers', 0.3)} {telling}".strip(),
            *(middle if self._rng.random() < 0.5 else [joined(middle)]),
            ask,
            f"{self._say('closings')}\n{self._signature()}",
            self._say("asides", 0.13),
        ]

    def _block(self, telling: str, facts: list[str], tried: list[str], ask: str) -> list[str]:
        name = self._signature() if self._rng.random() < 0.6 else ""
        return [joined([telling, *facts, *tried, ask]), name]

    def _list(self, telling: str, facts: list[str], tried: list[str], ask: str) -> list[str]:
        points = "\n".join(f"- {text}" for text in [*facts, *tried])
        return [self._say("greetings", 0.5), telling, points, ask, self._signature()]

    def _signature(self) -> str:
        person, firm = next(self._senders)
        if self._rng.random() < 0.4:
            return person.split()[0]
        return f"{person}\n{firm}".rstrip()

    def _say(self, name: str, probability: float = 1.0) -> str:
        return next(self._phrases[name]) if self._rng.random() < probability else ""

    def _dealt(self, items: Sequence[Any]) -> Iterator[Any]:
        while True:
            yield from self._rng.sample(items, len(items))


def joined(texts: Sequence[str]) -> str:
    """Return the texts as one paragraph, or as several when one of them has several lines."""
    return ("\n\n" if any("\n" in text for text in texts) else " ").join(texts)


def paragraphs(texts: Sequence[str]) -> str:
    """Return the texts that are not empty, with a blank line between them."""
    return "\n\n".join(text for text in texts if text)
