"""Items and lessons of the small sessions in other languages and scripts, with invented words for topics."""

from __future__ import annotations

from itertools import combinations
from typing import NamedTuple

from training.items.format_items import HELDOUT_TOPICS, TRAIN_TOPICS

TOPICS = (*TRAIN_TOPICS, *HELDOUT_TOPICS)


class Language(NamedTuple):
    """How items are asked in a language."""

    sentence: str
    kinds: dict[str, str]
    """What asks for a form, by kind of items."""
    syllables: str
    liked: str
    """How an answer goes on."""
    lessons: int = 3000
    """So many until the small model writes answers that differ, some of them right."""


LANGUAGES = {
    "german": Language(
        "Schreibe einen Satz über {topic}.",
        {
            "lowercase": "Benutze nur Kleinbuchstaben.",
            "quoted": "Setze die ganze Antwort in doppelte Anführungszeichen.",
        },
        "bär gün söl tar mei vol kus dra fen lö wip zan",
        "mag ich heute sehr.",
        4000,
    ),
    "turkish": Language(
        "{topic} hakkında bir cümle yaz.",
        {"lowercase": "Yalnızca küçük harf kullan.", "quoted": "Tüm yanıtını çift tırnak içine al."},
        "çı lığ ba şö kar vem dün zır göl pas tüy müs",
        "bugün çok güzel.",
        4000,
    ),
    "russian": Language(
        "Напиши одно предложение про {topic}.",
        {"lowercase": "Пиши только строчными буквами.", "quoted": "Заключи весь ответ в двойные кавычки."},
        "ба кол вен жу щёк тыр мош гла зим пре дор нюх",
        "мне сегодня нравится.",
        4000,
    ),
    "greek": Language(
        "Γράψε μία πρόταση για {topic}.",
        {
            "lowercase": "Χρησιμοποίησε μόνο πεζά γράμματα.",
            "quoted": "Βάλε όλη την απάντηση σε διπλά εισαγωγικά.",
        },
        "βα κολ θε ρη ψαν ξι μου δρα γκε λος φι τζα",
        "μου αρέσει σήμερα.",
        4000,
    ),
    "chinese": Language(
        "写一句关于{topic}的话。",
        {"quoted": "把整个回答放在双引号里。", "title": "先写一个用<<和>>括起来的标题。"},
        "山 水 木 石 云 鸟 鱼 灯 桥 船 花 茶",
        "今天我很喜欢。",
        4000,
    ),
    "japanese": Language(
        "{topic}について一文を書いてください。",
        {"quoted": "答え全体を二重引用符で囲んでください。", "title": "最初に<<と>>で囲んだ題を書いてください。"},
        "さく かわ もり つき はな そら いし うみ とり ゆき かぜ ほし",
        "今日は好きです。",
    ),
    "thai": Language(
        "เขียนหนึ่งประโยคเกี่ยวกับ{topic}",
        {"quoted": "ใส่คำตอบทั้งหมดไว้ในเครื่องหมายคำพูดคู่", "title": "เริ่มด้วยชื่อเรื่องใน <<และ>>"},
        "นา ปลา ไม้ ดาว ฝน ทราย ผ้า แก้ว เรือ ลม หิน ดอก",
        "วันนี้ฉันชอบ",
        3500,
    ),
    "arabic": Language(
        "اكتب جملة واحدة عن {topic}.",
        {"quoted": "ضع الإجابة كلها بين علامتي اقتباس مزدوجتين.", "title": "ابدأ بعنوان بين << و >>."},
        "قم نج بحر شم ريح ورد سما نهر جبل طير ضو ملح",
        "أحبه كثيرا هذا اليوم.",
    ),
    "hindi": Language(
        "{topic} के बारे में एक वाक्य लिखो।",
        {"quoted": "पूरा उत्तर दोहरे उद्धरण चिह्नों में रखो।", "title": "पहले << और >> में एक शीर्षक लिखो।"},
        "पा नद फूल चां सूर हवा रे मिट सोन दूध घा तार",
        "मुझे आज पसंद है।",
        3500,
    ),
    "code": Language(
        "Write a one-line comment for the function `{topic}()`.",
        {"lowercase": "Use only lowercase letters.", "quoted": "Put it all inside double quotation marks."},
        "get_ set_ map_ run_ add_ pop_ row_ col_ key_ val_ bit_ hex_",
        "is what this returns.",
    ),
}


def write_topic(language: str, topic: str) -> str:
    """Return the invented word that stands for a topic: two syllables, of which two words share one at most."""
    words = list(combinations(LANGUAGES[language].syllables.split(), 2))
    return "".join(words[5 * TOPICS.index(topic) % len(words)]).rstrip("_")


def write_prompt(language: str, topic: str, kind: str) -> str:
    """Return how an item is asked in a language."""
    spoken = LANGUAGES[language]
    return f"{spoken.sentence.format(topic=write_topic(language, topic))} {spoken.kinds[kind]}"
