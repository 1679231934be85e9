"""Frames over a pipe: a length of four bytes, little-endian, then one msgpack value.

Nothing that is read can run code: no pickle, no extension types. Values of `schemas.requests`
travel as rows, their fields in order, because that is five times smaller and quicker than
maps with field names; both ends are of one version, started together.
"""

import os
import select
from collections.abc import Iterator, Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any, cast

import msgpack

from schemas.requests import Answer, SamplingSettings, StepStats, StepWork

MAX_FRAME_BYTES = 1 << 30
"""More than any frame can need; a greater length means that the pipe carries something else."""

_LENGTH_BYTES = 4
_READ_BYTES = 1 << 20

Row = tuple[Any, ...]


class WireError(Exception):
    """What came through the pipe is not a frame."""


def packed(value: object) -> bytes:
    """Return `value` as one frame.

    Raises:
        OverflowError: an integer is outside 64 bits.
        TypeError: a value has no msgpack form.
    """
    content = cast("bytes", msgpack.packb(value))
    return len(content).to_bytes(_LENGTH_BYTES, "little") + content


class Inbox:
    """Frames that arrive on one end of a pipe; lists come out as tuples."""

    def __init__(self, descriptor: int) -> None:
        """Read from this file descriptor, which stays its owner's."""
        self._descriptor = descriptor
        self._arrivals = select.poll()
        self._arrivals.register(descriptor, select.POLLIN)
        self._buffer = bytearray()
        self._is_closed = False

    @property
    def is_closed(self) -> bool:
        """Whether the other end is closed and every whole frame has been returned."""
        return self._is_closed

    def read(self, *, is_blocking: bool) -> list[Row]:
        """Return the whole frames that have arrived; if blocking, wait for at least one.

        Empty, with `is_closed`, once the other end is closed. Half a frame before that is
        dropped: its sender died while it wrote.

        Raises:
            WireError: the bytes are not frames.
        """
        frames: list[Row] = []
        while not self._is_closed:
            if (frames or not is_blocking) and not self._arrivals.poll(0):
                break
            arrived = os.read(self._descriptor, _READ_BYTES)
            self._is_closed = not arrived
            self._buffer += arrived
            frames += self._whole_frames()
        return frames

    def _whole_frames(self) -> Iterator[Row]:
        start = 0
        while len(self._buffer) - start >= _LENGTH_BYTES:
            length = int.from_bytes(self._buffer[start : start + _LENGTH_BYTES], "little")
            if length > MAX_FRAME_BYTES:
                raise WireError(f"a frame of {length} bytes; the limit is {MAX_FRAME_BYTES}")
            end = start + _LENGTH_BYTES + length
            if len(self._buffer) < end:
                break
            yield _unpacked(self._buffer[start + _LENGTH_BYTES : end])
            start = end
        del self._buffer[:start]


def _unpacked(content: bytearray) -> Row:
    try:
        value: object = msgpack.unpackb(content, use_list=False)
    except (ValueError, msgpack.UnpackException) as error:
        raise WireError(f"a frame of {len(content)} bytes is not msgpack: {error}") from error
    if not isinstance(value, tuple):
        raise WireError(f"a frame holds {type(value).__name__}, expected a list")
    return value


_ANSWER = tuple(one.name for one in fields(Answer))
_SAMPLING = tuple(one.name for one in fields(SamplingSettings))
_WORK = tuple(one.name for one in fields(StepWork))
_STEP = tuple(one.name for one in fields(StepStats) if one.name != "work")

_answer_values = attrgetter(*_ANSWER)
_sampling_values = attrgetter(*_SAMPLING)
_work_values = attrgetter(*_WORK)
_step_values = attrgetter(*_STEP)


def answer_row(answer: Answer) -> Row:
    """Return the answer's fields in order."""
    return _answer_values(answer)


def answer_of(row: Sequence[Any]) -> Answer:
    """Return the answer with these fields."""
    return Answer(**dict(zip(_ANSWER, row, strict=True)))


def sampling_row(sampling: SamplingSettings) -> Row:
    """Return the settings' fields in order."""
    return _sampling_values(sampling)


def sampling_of(row: Sequence[Any]) -> SamplingSettings:
    """Return the settings with these fields."""
    return SamplingSettings(**dict(zip(_SAMPLING, row, strict=True)))


def step_row(step: StepStats) -> Row:
    """Return the step's fields in order, its work as rows at the end."""
    return (*_step_values(step), tuple(_work_values(one) for one in step.work))


def step_of(row: Sequence[Any]) -> StepStats:
    """Return the step with these fields."""
    *values, work = row
    groups = tuple(StepWork(**dict(zip(_WORK, one, strict=True))) for one in work)
    return StepStats(**dict(zip(_STEP, values, strict=True)), work=groups)
