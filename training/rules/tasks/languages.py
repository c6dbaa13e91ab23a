"""Which of thirty languages a text is in: by its script, and if languages share it by letters and frequent words.

Small and deterministic, for answers of a sentence or more. Other languages, texts of a few words and mixed texts may
get a wrong answer. No library that does this offline was both maintained and free of downloads.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter

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
