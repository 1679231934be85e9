"""The door to Jinja: a row's columns become a prompt's text, in a sandbox.

The template is the job owner's; rows are anybody's. Row values are only ever values: what
looks like a template inside them stays as it is.
"""

import re
from collections.abc import Mapping

import jinja2
import jinja2.meta
import jinja2.nodes
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from schemas.errors import SettingsError

_FUNCTIONS = frozenset({"range", "dict", "namespace"})
"""Jinja's functions that a template may use; its others make text or keep state."""

_ROW_ERRORS = (
    TypeError,
    ValueError,
    ArithmeticError,
    LookupError,
    AttributeError,
    MemoryError,
    RecursionError,
)
MAX_CHARACTERS = 64 * 1024 * 1024
"""What one rendered prompt may hold; more is a template out of hand, not a prompt."""


class RenderError(Exception):
    """The template cannot be rendered for one row; the message never quotes the row."""


_Pieces = list[tuple[str, str]]


def _pieces(tree: jinja2.nodes.Template, columns: set[str]) -> tuple[_Pieces | None, str]:
    """Return (text, column) pairs and the text behind them; None for a template that does more.

    A template that only puts columns into text needs no Jinja to render it.
    """
    pieces: _Pieces = []
    text = ""
    for output in tree.body:
        if not isinstance(output, jinja2.nodes.Output):
            return None, ""
        for node in output.nodes:
            if isinstance(node, jinja2.nodes.TemplateData):
                text += node.data
            elif isinstance(node, jinja2.nodes.Name) and node.name in columns:
                pieces.append((text, node.name))
                text = ""
            else:
                return None, ""
    return pieces, text


def _present(value: object) -> object:
    """Render a null as nothing, so that no prompt ever says "None"."""
    return "" if value is None else value


class _Environment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox, with arithmetic that cannot fill memory or take for ever.

    `9**9**9` and `'a' * 3000000000` are legal templates; constants are not folded when the
    template is compiled (`optimized=False`), so all arithmetic comes through here.
    """

    intercepted_binops = frozenset(["*", "**", "%"])

    def call_binop(self, context: Context, operator: str, left: object, right: object) -> object:
        """Return the operation's result, or refuse it."""
        if not (isinstance(left, int | float) and isinstance(right, int | float)):
            raise SecurityError(f"`{operator}` is for numbers in a template")
        if operator == "**" and (abs(left) > 1e6 or abs(right) > 64):
            raise SecurityError("a power this large is not allowed in a template")
        return super().call_binop(context, operator, left, right)


class RowTemplate:
    """A sandboxed Jinja template over a row's columns; undefined names are errors."""

    def __init__(self, source: str) -> None:
        """Compile the template.

        Raises:
            SettingsError: it is not a template; the message gives line and reason.
        """
        environment = _Environment(
            optimized=False,
            undefined=jinja2.StrictUndefined,
            finalize=_present,
            keep_trailing_newline=True,
            autoescape=False,
        )
        for name in set(environment.globals) - _FUNCTIONS:
            del environment.globals[name]
        try:
            tree = environment.parse(source)
            columns = jinja2.meta.find_undeclared_variables(tree)
            self._template = environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise SettingsError(
                f"prompt.user is not a template: line {error.lineno}: {error.message}"
            ) from error
        except SecurityError as error:
            raise SettingsError(f"prompt.user does what a template may not: {error}") from error
        self._source = source
        self._pieces, self._end = _pieces(tree, columns)
        self._globals = {name: environment.globals[name] for name in _FUNCTIONS}
        self.columns: frozenset[str] = frozenset(columns)
        names = {node.name for node in tree.find_all(jinja2.nodes.Name)}
        self.functions: frozenset[str] = frozenset(names & _FUNCTIONS)
        if not self.columns:
            raise SettingsError(
                "prompt.user names no column, so every row would be the same prompt; "
                "write {{ column }} where the row's text goes"
            )

    def render(self, row: Mapping[str, object]) -> str:
        """Return the text for one row.

        Raises:
            RenderError: the row lacks what the template asks for, or it grew out of hand.
        """
        try:
            text = self._joined(row) if self._pieces is not None else self._rendered(row)
        except (jinja2.TemplateError, SecurityError) as error:
            raise RenderError(self._told(error)) from error
        except _ROW_ERRORS as error:
            raise RenderError(type(error).__name__) from error
        if len(text) > MAX_CHARACTERS:
            raise RenderError(f"{len(text)} characters, more than {MAX_CHARACTERS}")
        return text

    def _joined(self, row: Mapping[str, object]) -> str:
        """Return what Jinja gives for text and bare columns, in a tenth of its time."""
        assert self._pieces is not None
        joined: list[str] = []
        for text, column in self._pieces:
            value = row[column]
            joined += (text, value if type(value) is str else str(_present(value)))
        return "".join([*joined, self._end])

    def _rendered(self, row: Mapping[str, object]) -> str:
        # A shared context is not copied: Template.render() took half of planning's time.
        context = self._template.new_context({**self._globals, **row}, shared=True)
        return "".join(self._template.root_render_func(context))

    def _told(self, error: Exception) -> str:
        """Return the kind of error and the names it quotes, if the template itself has them.

        Jinja quotes what was looked up, and that may come from the row.
        """
        quoted = re.findall(r"'([^']+)'", str(error))
        known = [name for name in quoted if name.isidentifier() and name in self._source]
        return ": ".join([type(error).__name__, *([", ".join(known)] if known else [])])
