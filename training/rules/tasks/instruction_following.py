r"""The task `instruction_following`: instructions that code can verify, of the 25 types of IFEval.

Zhou et al. 2023, "Instruction-Following Evaluation for Large Language Models" (arXiv:2311.07911), written anew from the
paper's definitions. An item names its instructions by number in its constraint: ``"1": "keywords:existence"`` with its
arguments next to it, ``"1.keywords": "[\"tea\", \"milk\"]"`` (a list is JSON in a string). An answer passes when it
follows all of them.

What differs from the authors' program: sentences are counted by rules instead of nltk's punkt model, and languages are
told apart by script and frequent words instead of langdetect. So this is not the official score, and is not to be
compared with published ones. What an answer says is not judged.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from specs.stages.base.artifacts import Item
from training.rules.tasks.format_instructions import Judgement, Span

Arguments = Mapping[str, Any]
Verify = Callable[[Arguments, str], str]
"""Returns what is wrong with an answer, or an empty string."""

_NUMBERED = re.compile(r"([1-9]\d?)(?:\.([a-z_]+))?")
_RELATIONS = ("at least", "less than")
_CONSTRAINED = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
_ABBREVIATIONS = re.compile(r"\b(?:Mr|Mrs|Ms|Dr|Prof|St|Sr|Jr|vs|etc|e\.g|i\.e|No|Inc|Ltd|Co|[A-Z])\.$")


def words_of(text: str) -> list[str]:
    """Return the words of a text: runs of letters, digits and underscores."""
    return re.findall(r"\w+", text)


def sentences_of(text: str) -> list[str]:
    """Return the sentences of a text.

    A sentence ends at ``.``, ``!`` or ``?`` (several, and closing quotes, included) before white space, unless it is
    the full stop of an abbreviation or initial, and at an empty line.
    """
    texts: list[str] = []
    for block in re.split(r"\n\s*\n", text):
        started_at = ""
        for piece in re.split(r"(?<=[.!?])([\"')\]]*)\s+", block.strip()):
            started_at = f"{started_at}{piece}" if not piece.strip("\"')]") else f"{started_at} {piece}".strip()
            if re.search(r"[.!?][\"')\]]*$", started_at) and not _ABBREVIATIONS.search(started_at):
                texts.append(started_at)
                started_at = ""
        if words_of(started_at):
            texts.append(started_at)
    return [sentence for sentence in texts if words_of(sentence)]


def _check_relation(count: int, relation: str, number: int, what: str) -> str:
    if relation not in _RELATIONS:
        raise ValueError(f"unknown relation '{relation}'; known: {', '.join(_RELATIONS)}")
    right = count >= number if relation == "at least" else count < number
    return "" if right else f"has {count} {what}, asked for {relation} {number}"


def _check_exact_count(result: int, number: int, what: str) -> str:
    return "" if result == number else f"has {result} {what} instead of {number}"


def _keywords(arguments: Arguments, text: str) -> str:
    missing = [word for word in arguments["keywords"] if str(word).lower() not in text.lower()]
    return f"does not hold {missing[0]!r}" if missing else ""


def _keyword_frequency(arguments: Arguments, text: str) -> str:
    count = text.lower().count(str(arguments["keyword"]).lower())
    return _check_relation(count, arguments["relation"], arguments["frequency"], f"times {arguments['keyword']!r}")


def _forbidden(arguments: Arguments, text: str) -> str:
    used = next(_used(arguments, text), None)
    return f"holds the forbidden {used[0]!r}" if used else ""


def _used(arguments: Arguments, text: str) -> Iterator[tuple[str, Span]]:
    for word in map(str, arguments["forbidden_words"]):
        if match := re.search(rf"\b{re.escape(word)}\b", text, re.IGNORECASE):
            yield word, match.span()


def _letter_frequency(arguments: Arguments, text: str) -> str:
    count = text.lower().count(str(arguments["letter"]).lower())
    return _check_relation(
        count, arguments["let_relation"], arguments["let_frequency"], f"times the letter {arguments['letter']!r}"
    )


def _language(arguments: Arguments, text: str) -> str:
    matching_text = language_of(text)
    return (
        ""
        if matching_text == arguments["language"]
        else f"is in {matching_text or 'no known language'} instead of {arguments['language']}"
    )


def _paragraphs(arguments: Arguments, text: str) -> str:
    parts = [part.strip() for part in text.split("***")]
    if any(not part for part in parts[1:-1]):
        return "has an empty paragraph between two ***"
    return _check_exact_count(sum(1 for part in parts if part), arguments["num_paragraphs"], "paragraphs")


def _nth_paragraph(arguments: Arguments, text: str) -> str:
    parts = [part.strip() for part in text.split("\n\n") if part.strip()]
    wrong = _check_exact_count(len(parts), arguments["num_paragraphs"], "paragraphs")
    number = arguments["nth_paragraph"]
    if wrong or not 1 <= number <= len(parts):
        return wrong or f"has no paragraph {number}"
    first = re.match(r"[\"'(*_]*([^\s.,?!'\"]+)", parts[number - 1])
    begins = first[1].lower() if first else ""
    due_text = str(arguments["first_word"]).lower()
    return "" if begins == due_text else f"paragraph {number} begins with {begins!r} instead of {due_text!r}"


def _postscript(arguments: Arguments, text: str) -> str:
    marker = str(arguments["postscript_marker"])
    letters = [letter for letter in marker if letter.isalpha()]
    pattern = r"\.?\s?".join(map(re.escape, letters))
    match = re.search(rf"^\W*{pattern}\b.*\w", text, re.IGNORECASE | re.MULTILINE)
    return "" if match else f"has no line that begins with {marker!r} and says something"


def _bullets(arguments: Arguments, text: str) -> str:
    return _check_exact_count(
        len(re.findall(r"^\s*(?:\*(?!\*)|-)\s*\S.*$", text, re.MULTILINE)), arguments["num_bullets"], "bullets"
    )


def _highlights(arguments: Arguments, text: str) -> str:
    strong = [part for part in re.findall(r"\*\*([^\n*]*)\*\*", text) if part.strip()]
    rest = re.sub(r"\*\*[^\n*]*\*\*", " ", text)
    light = [part for part in re.findall(r"\*([^\n*]+)\*", rest) if part.strip()]
    return _check_relation(len(strong) + len(light), "at least", arguments["num_highlights"], "highlighted sections")


def _sections(arguments: Arguments, text: str) -> str:
    splitter = re.escape(str(arguments["section_spliter"]))
    return _check_relation(
        len(re.findall(rf"{splitter}\s?\d+", text)), "at least", arguments["num_sections"], "sections"
    )


def _json(_: Arguments, text: str) -> str:
    inner = re.sub(r"^```(?:json|JSON|Json)?\s*|\s*```$", "", text.strip())
    try:
        json.loads(inner)
    except (ValueError, RecursionError):
        return "is not JSON"
    return ""


def _two_responses(_: Arguments, text: str) -> str:
    parts = [part.strip() for part in re.split(r"\*{6,}", text)]
    if any(not part for part in parts[1:-1]):
        return "has an empty response"
    texts = [part for part in parts if part]
    if len(texts) != 2:
        return f"has {len(texts)} responses instead of 2, separated by ******"
    return "gives the same response twice" if texts[0] == texts[1] else ""


def _repeats(arguments: Arguments, text: str) -> str:
    request = str(arguments["prompt_to_repeat"]).strip().lower()
    return "" if text.strip().lower().startswith(request) else "does not begin with the request, word for word"


def _ends_with(arguments: Arguments, text: str) -> str:
    phrase = str(arguments["end_phrase"]).strip().lower()
    return "" if text.strip().strip('"').lower().endswith(phrase) else f"does not end with {arguments['end_phrase']!r}"


def _capital_words(arguments: Arguments, text: str) -> str:
    count = sum(word.isupper() for word in re.findall(r"\w[\w'-]*", text))
    return _check_relation(count, arguments["capital_relation"], arguments["capital_frequency"], "words in capitals")


def _check_quotation(_: Arguments, text: str) -> str:
    whole = text.strip()
    inside = len(whole) > 2 and whole[0] == whole[-1] == '"'
    return "" if inside else "is not in double quotation marks"


VERIFIERS: dict[str, tuple[Verify, tuple[str, ...]]] = {
    "keywords:existence": (_keywords, ("keywords",)),
    "keywords:frequency": (_keyword_frequency, ("keyword", "relation", "frequency")),
    "keywords:forbidden_words": (_forbidden, ("forbidden_words",)),
    "keywords:letter_frequency": (_letter_frequency, ("letter", "let_relation", "let_frequency")),
    "language:response_language": (_language, ("language",)),
    "length_constraints:number_sentences": (
        lambda arguments, text: _check_relation(
            len(sentences_of(text)), arguments["relation"], arguments["num_sentences"], "sentences"
        ),
        ("relation", "num_sentences"),
    ),
    "length_constraints:number_paragraphs": (_paragraphs, ("num_paragraphs",)),
    "length_constraints:number_words": (
        lambda arguments, text: _check_relation(
            len(words_of(text)), arguments["relation"], arguments["num_words"], "words"
        ),
        ("relation", "num_words"),
    ),
    "length_constraints:nth_paragraph_first_word": (_nth_paragraph, ("num_paragraphs", "nth_paragraph", "first_word")),
    "detectable_content:number_placeholders": (
        lambda arguments, text: _check_relation(
            len(re.findall(r"\[.*?\]", text)), "at least", arguments["num_placeholders"], "placeholders"
        ),
        ("num_placeholders",),
    ),
    "detectable_content:postscript": (_postscript, ("postscript_marker",)),
    "detectable_format:number_bullet_lists": (_bullets, ("num_bullets",)),
    "detectable_format:constrained_response": (
        lambda _, text: (
            "" if any(answer in text for answer in _CONSTRAINED) else f"holds none of {', '.join(_CONSTRAINED)}"
        ),
        (),
    ),
    "detectable_format:number_highlighted_sections": (_highlights, ("num_highlights",)),
    "detectable_format:multiple_sections": (_sections, ("section_spliter", "num_sections")),
    "detectable_format:json_format": (_json, ()),
    "detectable_format:title": (
        lambda _, text: "" if re.search(r"<<[^\n<>]*[^\s<>][^\n<>]*>>", text) else "has no title in << >>",
        (),
    ),
    "combination:two_responses": (_two_responses, ()),
    "combination:repeat_prompt": (_repeats, ("prompt_to_repeat",)),
    "startend:end_checker": (_ends_with, ("end_phrase",)),
    "change_case:capital_word_frequency": (_capital_words, ("capital_relation", "capital_frequency")),
    "change_case:english_capital": (lambda _, text: "" if text.isupper() else "is not all in capital letters", ()),
    "change_case:english_lowercase": (lambda _, text: "" if text.islower() else "is not all in small letters", ()),
    "punctuation:no_comma": (lambda _, text: "has a comma" if "," in text else "", ()),
    "startend:quotation": (_check_quotation, ()),
}
"""Type -> its verifier and the names of its arguments."""
PLACES: dict[str, Callable[[Arguments, str], Span]] = {
    "keywords:forbidden_words": lambda arguments, text: next(_used(arguments, text))[1],
    "punctuation:no_comma": lambda _, text: (text.index(","), text.index(",") + 1),
}
"""Type -> the characters that break it, where an answer does; types that are broken by what is missing have none."""


def constraint_of(instructions: Iterable[tuple[str, Arguments]]) -> dict[str, str | int]:
    """Write instructions as the constraint of an item; raises KeyError for an unknown type or a missing argument."""
    results: dict[str, str | int] = {}
    for number, (type_, arguments) in enumerate(instructions, 1):
        results[str(number)] = type_
        for name in VERIFIERS[type_][1]:
            value = arguments[name]
            results[f"{number}.{name}"] = json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value
    return results


def instructions_of(item: Item) -> list[tuple[str, dict[str, Any]]]:
    """Return an item's instructions with their arguments; raises ValueError if one is unknown or missing."""
    types: dict[int, str] = {}
    arguments: dict[int, dict[str, Any]] = {}
    for key, value in item.constraint.items():
        parts = _NUMBERED.fullmatch(key)
        if parts is None:
            raise ValueError(f"item '{item.id}': '{key}' is not a key of an instruction")
        number, name = int(parts[1]), parts[2]
        if name is None:
            types[number] = str(value)
        else:
            arguments.setdefault(number, {})[name] = _list_of(value)
    pairs: list[tuple[str, dict[str, Any]]] = []
    for number in sorted(types.keys() | arguments.keys()):
        type_ = types.get(number, "")
        if type_ not in VERIFIERS:
            raise ValueError(f"item '{item.id}': unknown type of instruction '{type_}'")
        texts, has = set(VERIFIERS[type_][1]), arguments.get(number, {})
        if texts != has.keys():
            raise ValueError(f"item '{item.id}': {type_} takes {sorted(texts)}, has {sorted(has)}")
        pairs.append((type_, has))
    if not pairs:
        raise ValueError(f"item '{item.id}' has no instruction")
    return pairs


def verify(item: Item, output: str) -> Judgement:
    """Return which instruction of its item an answer breaks first, if any; raises as :func:`instructions_of`."""
    instructions = instructions_of(item)
    if not output.strip():
        return Judgement(False, "is empty")
    for type_, arguments in instructions:
        wrong = VERIFIERS[type_][0](arguments, output)
        if wrong:
            place = PLACES.get(type_)
            return Judgement(False, f"{type_}: {wrong}", place(arguments, output) if place else None)
    return Judgement(True)


def follows_each(item: Item, output: str) -> list[tuple[str, bool]]:
    """Return each instruction of an item, by type, and whether an answer follows it; errors as `instructions_of`."""
    return [
        (type_, bool(output.strip()) and not VERIFIERS[type_][0](arguments, output))
        for type_, arguments in instructions_of(item)
    ]


def _list_of(value: str | int) -> Any:
    if isinstance(value, str) and value.startswith("["):
        return json.loads(value)
    return value


_SCRIPTS = {
    "HANGUL": "ko",
    "HIRAGANA": "ja",
    "KATAKANA": "ja",
    "THAI": "th",
    "BENGALI": "bn",
    "TAMIL": "ta",
    "TELUGU": "te",
    "KANNADA": "kn",
    "GUJARATI": "gu",
    "GURMUKHI": "pa",
    "MALAYALAM": "ml",
    "HEBREW": "he",
    "GREEK": "el",
}
"""Scripts that one language of the list is written in."""

_WORDS = {
    "LATIN": {
        "en": "the of and to in is that it was for with are this you on be have not they at which from or an as by we",
        "es": "de la que el en los se del las por un con una su para es al lo como más pero sus le ya este porque muy",
        "pt": "de que e do da em um para com não uma os no se na por mais as dos como mas foi ao ele das tem à seu é",
        "fr": "de la le et les des en un du une que est pour qui dans a par plus pas au sur ne se ce il sont avec je",
        "de": "der die und in den von zu das mit sich des auf für ist im dem nicht ein eine als auch es an werden ich",
        "it": "di che e la il un a per in una mi sono ho non ma lo ha le si ti con cosa da come questo della è gli del",
        "pl": "i w nie na się z do to że jest o jak a po co tak za ale od czy dla są przez przy być który oraz jego",
        "fi": "ja on ei se että en oli hän mutta ovat ne joka mitä kun niin myös kuin jos hänen olen tämä sen voi",
        "sw": "ya na wa kwa ni katika la za kuwa cha hii yake kama au lakini ambayo watu hiyo pia sana mimi yangu vya",
        "vi": "và của là có cho một không được trong những với người này đã các khi để về như tôi cũng từ đến bạn rất",
    },
    "CYRILLIC": {
        "ru": "и в не на я что он с это как а то все она так его но ты к у же вы за бы по только ее мне было от меня",
        "uk": "і в не на що я він з це як а то та його але до й ти у за по тільки її мені від є ми вони для бути було",
        "bg": "на и в да не се от за е с по това че са като ще до до си или но ние те беше при един която който много",
    },
    "DEVANAGARI": {
        "hi": "है के में की और का को से हैं यह पर एक नहीं भी इस था कि जो लिए तो ही कर रहा हो मैं हम वह आप",
        "mr": "आहे आणि या च्या मध्ये ते हे एक तो ती आहेत होते मी आम्ही त्यांनी नाही साठी पण होता किंवा असे केले काही",
        "ne": "छ र को मा लाई यो हो पनि गर्न हुन् भएको थियो एक छन् म हामी गरेको तर उनी त्यो लागि हुन्छ गर्छ",
    },
    "ARABIC": {
        "ar": "في من على أن إلى هذا التي عن مع ما لا هو كان الذي هي كل هذه بعد ذلك بين أو كما لم وقد إن وهو يكون",
        "fa": "و در به از که این را با است برای آن یک خود تا بر هم نیز شده می ما شود اما بود دارد کرد هستند من",
        "ur": "کے کی میں ہے اور سے کا کو اس نے پر ہیں یہ ایک کہ بھی کر نہیں تھا جو ہو گیا لیے وہ ہم آپ تھے",
    },
}
"""Scripts that several languages share, with the frequent words of each."""

_TELLING = {
    "uk": "іїєґ", "ru": "ыэё", "fa": "پچژگ", "ur": "ٹڈڑےںہ", "pl": "ąęłśżźńć", "vi": "ơưạảấầậếềệọốồộớờợụứừựỳ",
    "de": "ßäü", "es": "ñ¿¡", "pt": "ãõ", "fi": "äö",
}  # fmt: skip
"""Letters that hardly occur in other languages of the script; a word that has one counts half a word more."""


def language_of(text: str) -> str | None:
    """Return the ISO 639-1 code of the language of most words of a text; None if nothing tells."""
    scripts = Counter(script for letter in text if letter.isalpha() and (script := _script(letter)))
    if not scripts:
        return None
    if any(scripts[name] for name in ("HIRAGANA", "KATAKANA")) and scripts.most_common(1)[0][0] == "CJK":
        return "ja"
    script = scripts.most_common(1)[0][0]
    if script in _SCRIPTS:
        return _SCRIPTS[script]
    if script == "CJK":
        return "zh"
    words = re.findall(r"[\w\u0300-\u036f\u0900-\u097f\u200c]+", text.lower())
    scores = {
        language: sum((word in known) + 0.5 * any(letter in word for letter in telling) for word in words)
        for language, known, telling in (
            (language, frozenset(frequent.split()), _TELLING.get(language, ""))
            for language, frequent in _WORDS.get(script, {}).items()
        )
    }
    best = max(scores.items(), key=lambda pair: pair[1], default=(None, 0))
    return best[0] if best[1] > 0 else None


def _script(letter: str) -> str:
    return unicodedata.name(letter, "").partition(" ")[0]
