"""What only a process of its own shows: its streams, its signals, and what it loads."""

import json
import signal
import subprocess
import sys

import pytest

from tests.jobs.command_line import ROOT
from tests.jobs.small_jobs import NAME, write_rows

NOISY = """
import os
import jobs.openers

class Noisy(jobs.openers.EchoEngine):
    def poll(self, timeout_s):
        print("noise by print")
        os.write(1, b"noise by a library in C")
        return super().poll(timeout_s)

jobs.openers.EchoEngine = Noisy
"""
SLOW = """
import functools
import jobs.openers

jobs.openers.EchoEngine = functools.partial(
    jobs.openers.EchoEngine, tokens_per_s=2000, max_num_seqs=8
)
"""
STUBBORN = """
import sys, time
from jobs.commands.ending import end

def work():
    try:
        print("ready", file=sys.stderr, flush=True)
        time.sleep(600)
    except KeyboardInterrupt:
        print("stopping", file=sys.stderr, flush=True)
        time.sleep(600)

end(work, as_json=False)
"""


def started(command, promptmill):
    return subprocess.Popen(
        command, env=promptmill.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_with_json_stdout_holds_one_object_whatever_libraries_print(promptmill):
    command = promptmill.script(NOISY, "run", NAME, "--json")

    done = subprocess.run(
        command, env=promptmill.environment, capture_output=True, check=True, timeout=240
    )

    assert json.loads(done.stdout)["num_generations"] == 4
    assert done.stdout.count(b"\n") == 1
    assert b"noise by print" in done.stderr
    assert b"noise by a library in C" in done.stderr
    assert b"planning" in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda one: one.name)
def test_a_run_that_is_stopped_ends_with_130_and_the_same_command_does_the_rest(promptmill, number):
    write_rows(promptmill.folder, "more", [f"ticket {n}" for n in range(600)])
    arguments = ("run", NAME, "--set", "output.max_batch_tokens=600", "--json")
    with started(promptmill.script(SLOW, *arguments), promptmill) as process:
        while b"generating" not in (line := process.stderr.readline()):
            assert line, "it ended before it was stopped"
        process.send_signal(number)
        out, err = process.communicate(timeout=240)

    assert process.returncode == 130
    assert json.loads(out)["exit_code"] == 130
    assert b"the same command does the rest: promptmill run" in err
    report = json.loads(promptmill(*arguments).stdout)
    assert report["num_reused_batches"] < report["num_batches"]
    assert report["num_rows"] == 605
    assert promptmill("verify", report["run_uri"]).exit_code == 0


def test_a_second_signal_ends_at_once(promptmill):
    with started([sys.executable, "-c", STUBBORN], promptmill) as process:
        for awaited in (b"ready\n", b"stopping\n"):
            while (line := process.stderr.readline()) != awaited:
                assert line, "it ended before it was stopped"
            process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)

    assert process.returncode == 130


def test_a_reader_that_has_gone_away_is_no_error(promptmill):
    with started(promptmill.script("", "jobs"), promptmill) as process:
        process.stdout.close()
        err = process.stderr.read()

    assert (process.returncode, err) == (0, b"")


def test_help_loads_no_library_that_takes_time(promptmill):
    script = (
        "import sys; from jobs.cli import app\n"
        "heavy = {'pyarrow', 'polars', 'pydantic', 'transformers', 'fsspec', 'dagster', 'rich'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )

    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )

    assert done.stdout == "[]\n"


@pytest.mark.parametrize("arguments", [["run", "--jsn"], ["run"], ["bogus"]])
def test_arguments_that_do_not_fit_are_one_object_too(promptmill, arguments):
    done = subprocess.run(
        promptmill.script("", *arguments, "--json"),
        env=promptmill.environment,
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 2
    assert json.loads(done.stdout)["exit_code"] == 2
    assert done.stderr.startswith(b"error: ")
