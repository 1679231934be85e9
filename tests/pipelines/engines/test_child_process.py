import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from pipelines.engines.child_process import ROOT, ChildProcess
from pipelines.engines.last_lines import scrubbed
from tests.pipelines.engines.processes import is_gone_within, is_group_empty

CHILD = "tests.pipelines.engines.obedient_child"


@pytest.fixture
def child(tmp_path):
    made = ChildProcess(CHILD, os.environ, log=tmp_path / "child.log")
    assert made.receive(60) == [("pid", made.pid)]
    yield made
    made.close()


def wait_until_ended(child, seconds=20.0):
    deadline = time.monotonic() + seconds
    while child.ended is None and time.monotonic() < deadline:
        child.receive(0.1)
    return child.ended


def test_frames_come_back_in_the_order_in_which_they_were_sent(child):
    for number in range(200):
        child.send((number, "x" * 10_000))

    seen = []
    while len(seen) < 200:
        seen += child.receive(20)

    assert [frame[0] for frame in seen] == list(range(200))


def test_sending_does_not_wait_for_a_child_that_does_not_read(child):
    os.kill(child.pid, signal.SIGSTOP)
    began = time.monotonic()
    for _ in range(40):
        child.send(("x" * 1_000_000,))

    assert time.monotonic() - began < 5.0


def test_what_the_child_prints_goes_to_its_log_and_not_among_the_frames(child, tmp_path):
    child.send(("hello",))

    assert child.receive(20) == [("hello",)]
    child.close()
    assert "a library talking on stdout" in (tmp_path / "child.log").read_text()


def test_without_a_log_it_prints_to_our_stderr_and_never_to_our_stdout(capfd):
    child = ChildProcess(CHILD, os.environ)
    child.receive(60)
    child.close()

    printed = capfd.readouterr()
    assert "a library talking on stdout" in printed.err
    assert printed.out == ""


def test_an_exit_is_told_with_its_code_its_age_and_its_last_words_without_numbers(child):
    child.send(("exit", 7))

    ended = wait_until_ended(child)
    assert ended.startswith("exit code 7 after ")
    assert ended.endswith("| last words [numbers]")


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV", "SIGABRT"])
def test_a_signal_is_told_by_its_name_within_two_seconds(child, name):
    os.kill(child.pid, getattr(signal, name))

    assert wait_until_ended(child, 2.0).startswith(f"signal {name} after ")


def test_frames_sent_before_a_death_are_received_after_it(child):
    child.send(("one",))
    child.send(("exit", 1))
    while child.ended is None:
        time.sleep(0.02)

    assert child.receive(0) == [("one",)]


def test_killing_the_child_kills_what_it_has_started(child):
    child.send(("start a child",))
    ((_, grandchild),) = child.receive(20)

    child.kill()

    assert is_gone_within(grandchild, 5.0)


def test_what_a_dead_child_leaves_behind_is_killed_too(child):
    child.send(("start a child",))
    ((_, grandchild),) = child.receive(20)
    os.kill(child.pid, signal.SIGKILL)
    wait_until_ended(child)

    assert is_gone_within(grandchild, 5.0)
    assert is_group_empty(child.pid)


def test_temporary_files_end_with_the_child(child):
    child.send(("make a temporary file",))
    ((_, path),) = child.receive(20)
    assert Path(path).exists()

    os.kill(child.pid, signal.SIGKILL)
    wait_until_ended(child)

    assert not Path(path).parent.exists()


def test_closing_ends_a_child_that_ignores_both_the_end_of_its_pipe_and_sigterm(child):
    child.send(("be deaf",))
    child.receive(20)

    child.close()
    child.close()

    assert child.ended.startswith("signal SIGKILL")
    assert is_group_empty(child.pid)


def test_a_stopped_child_can_be_closed(child):
    os.kill(child.pid, signal.SIGSTOP)

    child.close()

    assert is_group_empty(child.pid)


def test_a_child_lives_on_when_the_thread_that_asked_for_it_ends(tmp_path):
    made = []
    asking = threading.Thread(
        target=lambda: made.append(ChildProcess(CHILD, os.environ, log=tmp_path / "log"))
    )
    asking.start()
    asking.join()
    (child,) = made

    assert child.receive(60) == [("pid", child.pid)]
    child.send(("still here",))
    assert child.receive(20) == [("still here",)]
    child.close()


@pytest.mark.parametrize("is_stopped", [False, True], ids=["reading", "stopped"])
def test_a_child_whose_parent_is_killed_is_gone_within_five_seconds(is_stopped):
    code = (
        "import os, time\n"
        "from pipelines.engines.child_process import ChildProcess\n"
        f"child = ChildProcess('{CHILD}', os.environ)\n"
        "child.receive(60)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment
    ) as parent:
        pid = int(parent.stdout.readline())
        if is_stopped:
            os.kill(pid, signal.SIGSTOP)
        parent.kill()

    assert is_gone_within(pid, 5.0)


def test_a_python_that_is_not_there_cannot_be_started(monkeypatch):
    monkeypatch.setattr(sys, "executable", "/no/such/python")

    with pytest.raises(FileNotFoundError):
        ChildProcess(CHILD, os.environ)


def test_a_line_of_a_log_loses_lists_of_numbers():
    line = "grammar rejected tokens [31, 7, 8, 9, 12] of prompt (1,2,3,4,5,6"

    assert scrubbed(line + "\n") == "grammar rejected tokens [numbers] of prompt [numbers]"


def test_an_obituary_has_no_long_lines(child):
    child.send(("print", "z" * 5000))
    child.send(("exit", 1))

    assert len(wait_until_ended(child)) < 700
