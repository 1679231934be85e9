"""Labels as a token tree: the probability of every choice, and an answer that is one of them.

Each place where the choices' tokens part ways is one request for one token, of which only the
parting tokens are allowed and their log-probabilities are returned. All of a row's requests
are known beforehand and share the prompt's cached prefix. No grammar is needed, and choices
that begin with the same token ("bug", "bug report") are told apart exactly.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from schemas.errors import SettingsError
from schemas.requests import SamplingSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Fork:
    """A place in the tree: the tokens that lead to it, and those among which it decides."""

    path: tuple[int, ...]
    token_ids: tuple[int, ...]


class LabelTree:
    """The choices of a labeling job, as tokens."""

    def __init__(
        self, choices: Sequence[str], tokens: Sequence[Sequence[int]], end_token_id: int | None
    ) -> None:
        """Build the tree from each choice's tokens.

        Raises:
            SettingsError: two choices have the same tokens, or one is the beginning of
                another and the model has no end token to tell them apart.
        """
        self.choices = tuple(choices)
        paths = [tuple(ids) for ids in tokens]
        is_beginning = [any(o != p and o[: len(p)] == p for o in paths) for p in paths]
        if any(is_beginning) and end_token_id is None:
            raise SettingsError("one label begins another, and the model has no end token")
        ends = () if end_token_id is None else (end_token_id,)
        self._paths = [p + ends if b else p for p, b in zip(paths, is_beginning, strict=True)]
        if len(set(self._paths)) != len(self._paths) or not all(self._paths):
            raise SettingsError("two choices are the same to the model")
        prefixes = {path[:length] for path in self._paths for length in range(len(path))}
        forks = [
            Fork(path=prefix, token_ids=tuple(sorted(self._next_tokens(prefix))))
            for prefix in sorted(prefixes, key=lambda path: (len(path), path))
        ]
        self.forks = tuple(fork for fork in forks if len(fork.token_ids) > 1)
        self.num_answer_tokens = max(len(fork.path) + 1 for fork in self.forks)

    def _next_tokens(self, prefix: tuple[int, ...]) -> set[int]:
        length = len(prefix)
        return {p[length] for p in self._paths if len(p) > length and p[:length] == prefix}

    def sampling(self, fork: Fork) -> SamplingSettings:
        """Return the settings that ask for the one token of this fork."""
        return SamplingSettings(
            max_tokens=1, allowed_token_ids=fork.token_ids, logprob_token_ids=fork.token_ids
        )

    def probabilities(self, logprobs: Sequence[Sequence[float]]) -> tuple[float, ...]:
        """Return the probability of each choice, in their order; they sum to 1.

        `logprobs` are each fork's, in the order of `forks` and of their `token_ids`; at each
        fork they are renormalised over its tokens.
        """
        shares = {
            fork.path: dict(zip(fork.token_ids, _softmax(values), strict=True))
            for fork, values in zip(self.forks, logprobs, strict=True)
        }
        found = [
            math.prod(
                shares[path[:length]][path[length]]
                for length in range(len(path))
                if path[:length] in shares
            )
            for path in self._paths
        ]
        total = math.fsum(found)
        return tuple(value / total for value in found)


def _softmax(logprobs: Sequence[float]) -> list[float]:
    top = max(logprobs)
    weights = [math.exp(value - top) for value in logprobs]
    total = math.fsum(weights)
    return [weight / total for weight in weights]
