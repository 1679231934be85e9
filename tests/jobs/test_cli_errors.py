"""What a person is told who asks for something that is not there, and what is then on stdout."""

import json

import pytest

import jobs.tools
from jobs.commands.ending import printable
from tests.jobs.small_jobs import NAME

WRONG = {
    "an unknown job": (["run", "smal_job"], "no job `smal_job`; did you mean `small_job`?"),
    "no such file": (["run", "jobs/none.yaml"], "no job file jobs/none.yaml"),
    "an unknown key": (
        ["run", NAME, "--set", "sampling.max_tokns=3"],
        "unknown key `sampling.max_tokns`; did you mean `max_tokens`?",
    ),
    "no key": (["run", NAME, "--set", "max_tokens"], "expected key.path=value"),
    "a path through a value": (["run", NAME, "--set", "name.x=1"], "`name` is a value"),
    "a wrong value": (["run", NAME, "--weights", "int9"], "`model.weights`: Input should be"),
    "an unknown column": (
        ["run", NAME, "--set", "prompt.column=txt"],
        "has no column `txt`; did you mean `text`?",
    ),
    "an empty glob": (["run", NAME, "--input", "/nowhere/*.parquet"], "no Parquet file at"),
    "another scheme": (["run", NAME, "--input", "http://host/x"], "the scheme `http` is not"),
    "another output": (["run", NAME, "--output", "ftp://host/x"], "the scheme `ftp` is not"),
    "an unknown engine": (["plan", NAME, "--engine", "vlm"], "did you mean `vllm`?"),
    "a missing model": (["plan", NAME, "--model", "/nowhere"], "/nowhere is not a folder"),
    "no run": (["verify", "/nowhere"], "no run at /nowhere"),
    "no output": (["gc", "/nowhere"], "no runs at /nowhere"),
    "half an order": (["gc", "/nowhere", "--superseded"], "give both"),
    "unknown weights": (["model", "build", "x", "--weights", "int9"], "no weights `int9`"),
    "a remote target": (["export", "x", "--to", "s3://b/x.csv"], "export writes a local file"),
}


@pytest.mark.parametrize(("arguments", "expected"), WRONG.values(), ids=WRONG.keys())
def test_what_does_not_fit_is_one_clear_error_with_code_2_and_nothing_is_written(
    promptmill, arguments, expected
):
    result = promptmill(*arguments)

    assert result.exit_code == 2
    assert expected in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""
    assert not [path for path in promptmill.output.rglob("*") if path.is_file()]


@pytest.mark.parametrize("name", ["an unknown job", "an unknown column", "no run"])
def test_with_json_an_error_is_the_one_object_on_stdout(promptmill, name):
    arguments, expected = WRONG[name]

    result = promptmill(*arguments, "--json")

    found = json.loads(result.stdout)
    assert found["exit_code"] == result.exit_code == 2
    assert expected in found["error"]


def test_a_bug_ends_with_code_70_and_its_trace(promptmill, monkeypatch):
    def broken(*_arguments, **_options):
        raise ZeroDivisionError("of our own")

    monkeypatch.setattr(jobs.tools, "tools_for", broken)

    result = promptmill("run", NAME, "--json")

    assert json.loads(result.stdout) == {
        "error": "ZeroDivisionError: of our own",
        "exit_code": 70,
    }
    assert (result.exit_code, "Traceback" in result.stderr) == (70, True)


def test_an_interrupt_ends_with_code_130_and_says_how_to_resume(promptmill, monkeypatch):
    def interrupted(*_arguments, **_options):
        raise KeyboardInterrupt

    monkeypatch.setattr(jobs.tools, "tools_for", interrupted)

    result = promptmill("run", NAME)

    assert result.exit_code == 130
    assert "the same command does the rest: promptmill" in result.stderr


def test_a_text_that_would_command_a_terminal_is_shown_without_its_commands():
    assert printable("red\x1b[31m\nnext\x07") == "red\N{REPLACEMENT CHARACTER}[31m\nnext\ufffd"
