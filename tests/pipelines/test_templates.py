import pytest

from pipelines.templates import RenderError, RowTemplate
from schemas.errors import SettingsError


def test_a_template_knows_the_columns_it_reads():
    assert RowTemplate("{{ a }} {% if b %}{{ c.d }}{% endif %}").columns == {"a", "b", "c"}


def test_a_null_renders_as_nothing():
    assert RowTemplate("<{{ a }}|{{ b }}>").render({"a": None, "b": 0}) == "<|0>"


@pytest.mark.parametrize("text", ["{{ 7*7 }}", "{% raw %}", "<b>&", "a\x00b", "\u202eabc"])
def test_what_looks_like_a_template_in_a_row_stays_text(text):
    assert RowTemplate("{{ a }}").render({"a": text}) == text


@pytest.mark.parametrize(
    "source",
    [
        "{{ a.__class__.__mro__ }}",
        "{{ a.__init__.__globals__ }}",
        "{{ '{0.__class__}'.format(a) }}",
        "{{ a.append(1) }}",
        "{{ missing_name ~ a }}",
        "{% for i in range(10**9) %}{{ a }}{% endfor %}",
        "{{ a / 0 }}",
        "{{ 9**9**9 ~ a }}",
        "{{ 'a' * 3000000000 ~ a }}",
        "{{ '%3000000000d' % 1 ~ a }}",
        "{{ a[5] }}",
    ],
)
def test_a_template_that_reaches_out_fails_for_the_row_and_quotes_nothing(source):
    template = RowTemplate(source)
    with pytest.raises(RenderError) as caught:
        template.render({"a": ["secret"], "missing": 1})

    assert "secret" not in str(caught.value)


def test_a_template_with_a_fault_names_its_line():
    with pytest.raises(SettingsError, match="line 2"):
        RowTemplate("ok\n{% if %}")


def test_a_template_without_a_column_is_refused():
    with pytest.raises(SettingsError, match="names no column"):
        RowTemplate("Summarize.")


def test_a_template_that_reaches_out_without_a_row_is_refused_at_once():
    with pytest.raises(SettingsError, match="what a template may not"):
        RowTemplate("{{ ''.__class__ ~ a }}")


@pytest.mark.parametrize("source", ["{{ {'a': 1}[text] }}", "{{ text | attr(text) }}"])
def test_a_name_that_was_looked_up_in_a_row_is_not_told(source):
    with pytest.raises(RenderError) as caught:
        RowTemplate(source).render({"text": "canary0"})

    assert "canary0" not in str(caught.value)
