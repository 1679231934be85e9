"""Tunings: what settings gave which speed, measured on a machine with a job's own prompts."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """One combination of settings and what it gave.

    `tokens_per_s` counts prompt and output tokens over the seconds from the first request to
    the last answer; `load_s` is the start of the engine that the trial ran in.
    """

    max_num_seqs: int
    max_num_batched_tokens: int
    is_compiled: bool
    tokens_per_s: float
    load_s: float
    num_steps: int
    num_preemptions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """The trials of one `promptmill tune`, all over the same `num_requests` requests.

    It holds for the weights, the device and the engine that it names. Lengths are means per
    request, in tokens.
    """

    version: int
    job_name: str
    weights_hash: str
    device_name: str
    num_devices: int
    engine_version: str
    tuned_at: str
    num_requests: int
    mean_prompt_tokens: float
    mean_output_tokens: float
    trials: tuple[Trial, ...]

    @property
    def output_fraction(self) -> float:
        """Output tokens over prompt and output tokens, in 0-1: what balance depends on."""
        return self.mean_output_tokens / (self.mean_prompt_tokens + self.mean_output_tokens)

    def is_full(self, trial: Trial) -> bool:
        """Whether so many sequences were as many as the sample could show: more may be better."""
        return 2 * trial.max_num_seqs > self.num_requests

    @property
    def fastest(self) -> Trial:
        """The trial with the most tokens per second."""
        return max(self.trials, key=lambda trial: trial.tokens_per_s)

    def best(self, *, is_compiled: bool) -> Trial | None:
        """Return the fastest trial that was compiled, or that was not; None where none was."""
        found = [trial for trial in self.trials if trial.is_compiled == is_compiled]
        return max(found, key=lambda trial: trial.tokens_per_s, default=None)
