"""Questions and instructions are known in many languages, and ordinary statements are neither."""

from __future__ import annotations

import pytest

from gateway.trimming.relevance.instructions import instructs, is_question, is_standing


@pytest.mark.parametrize(
    "sentence",
    [
        *("Summarize the following text.", "Please be brief.", "Do not mention prices.", "You must answer in French."),
        *("IMPORTANT: Spanish only.", "Also, do not mention prices.", "For each paragraph, give a score."),
        *("- List three reasons.", "Fasse den Text zusammen.", "Bitte antworte kurz.", "Résumez le texte suivant."),
        *("Veuillez répondre en anglais.", "Resume el siguiente texto.", "Por favor, sé breve.", "Riassumi il testo."),
        *(
            "Переведи текст на английский.",
            "请总结以下内容。",
            "次の文章を要約してください。",
            "다음 글을 요약해 주세요.",
        ),
        *("لخص النص التالي.", "कृपया संक्षेप में लिखिए।", "กรุณาสรุปข้อความนี้", "Lütfen kısa yaz.", "Hãy tóm tắt văn bản."),
        *("Sadece iki cümleyle yanıtla.", "Sonucu tablo olarak gösterin.", "जवाब केवल एक वाक्य में दीजिए।"),
        *(
            "নিচের লেখাটি সংক্ষেপে লিখুন।",
            "جواب ایک جملے میں لکھیں۔",
            "فقط با یک جمله پاسخ بدهید.",
            "Két mondatban válaszolj.",
        ),
        *("Kirjoita yksi lause.", "Γράψε μία πρόταση.", "Напиши само едно изречение.", "Andika sentensi moja."),
    ],
)
def test_instructions(sentence: str) -> None:
    assert instructs(sentence)


@pytest.mark.parametrize(
    "sentence", ["Is that clear?", "是吗？", "هل هذا واضح؟", "¿Está claro?", "これは何ですか。", "Είναι σαφές;"]
)
def test_questions(sentence: str) -> None:
    assert is_question(sentence)


@pytest.mark.parametrize(
    "sentence",
    [
        *("The pump weighs 3 kg.", "We listened to the report.", "Notes were taken.", "Das Haus ist rot."),
        *("水泵重三公斤。", "Я был там вчера.", "The list is long."),
        *(
            "Pompa üç kilo geliyor.",
            "Yazın hava çok sıcaktı.",
            "पंप का वज़न तीन किलो है।",
            "ساعت دو بود.",
            "Olin siellä eilen.",
        ),
    ],
)
def test_statements(sentence: str) -> None:
    assert not instructs(sentence)
    assert not is_question(sentence)


@pytest.mark.parametrize(
    ("sentence", "expected"),
    [
        ("From now on, answer in Spanish.", True),
        ("Never mention prices.", True),
        ("Ab jetzt bitte nur auf Deutsch antworten.", True),
        ("从现在开始，请用中文回答。", True),
        ("Translate this sentence.", False),
        ("I always forget it.", False),
    ],
)
def test_instructions_for_all_that_follows(sentence: str, expected: bool) -> None:
    assert is_standing(sentence) is expected
