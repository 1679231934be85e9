"""How long answers were, by the length of their prompts: a small table of counts that adds up.

Lengths fall into buckets that are one token wide at first and then a fixed share of their
length: an eighth for outputs, a quarter for prompts. So a batch of thousands of requests takes
a few hundred cells, and the tables of many batches add up to the table of all of them.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from schemas.errors import VerificationError

_PROMPT_BITS = 2
_OUTPUT_BITS = 3


def _bucket(length: int, bits: int) -> int:
    """Return the bucket of a length: the length itself below 2^(bits+1), then 2^bits an octave.

    Source: the integer buckets of HdrHistogram, where a bucket is the leading bits of a value.
    """
    shift = max(0, length.bit_length() - bits - 1)
    return (shift << bits) + (length >> shift)


def _span(bucket: int, bits: int) -> tuple[int, int]:
    """Return the shortest and the longest length of a bucket."""
    shift = max(0, (bucket >> bits) - 1)
    first = bucket - (shift << bits)
    return first << shift, ((first + 1) << shift) - 1


def prompt_span(bucket: int) -> tuple[int, int]:
    """Return the fewest and the most prompt tokens of a prompt bucket."""
    return _span(bucket, _PROMPT_BITS)


def prompt_bucket(num_tokens: int) -> int:
    """Return the bucket of a prompt of so many tokens."""
    return _bucket(num_tokens, _PROMPT_BITS)


def output_span(bucket: int) -> tuple[int, int]:
    """Return the fewest and the most output tokens of an output bucket."""
    return _span(bucket, _OUTPUT_BITS)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputLengths:
    """Requests counted by (prompt bucket, output bucket)."""

    counts: Mapping[tuple[int, int], int] = field(default_factory=dict[tuple[int, int], int])

    @staticmethod
    def of(pairs: Iterable[tuple[int, int]]) -> "OutputLengths":
        """Return the counts of these (prompt tokens, output tokens) of single requests."""
        return OutputLengths(
            counts=Counter((prompt_bucket(p), _bucket(o, _OUTPUT_BITS)) for p, o in pairs)
        )

    @staticmethod
    def sum(many: Iterable["OutputLengths"]) -> "OutputLengths":
        """Return the counts of all of them together."""
        total: Counter[tuple[int, int]] = Counter()
        for one in many:
            total.update(one.counts)
        return OutputLengths(counts=total)

    @property
    def num_requests(self) -> int:
        """Requests counted."""
        return sum(self.counts.values())

    def to_text(self) -> str:
        """Return the counts as JSON text: [prompt bucket, output bucket, requests], sorted."""
        cells = [[*cell, count] for cell, count in sorted(self.counts.items())]
        return json.dumps(cells, separators=(",", ":"))

    @staticmethod
    def from_text(text: str) -> "OutputLengths":
        """Return the counts that `to_text` wrote.

        Raises:
            VerificationError: they are not such.
        """
        try:
            return OutputLengths(
                counts={
                    (int(prompt), int(output)): int(n) for prompt, output, n in json.loads(text)
                }
            )
        except (TypeError, ValueError) as error:
            raise VerificationError(f"output lengths: {text[:80]!r} are no counts") from error
