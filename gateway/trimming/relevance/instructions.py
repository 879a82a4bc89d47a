"""Detection of questions and instructions, in the languages that chats are most often held in.

Where the words of a language are unknown here, the position of a paragraph still counts: see `passages`.
"""

from __future__ import annotations

import re
from typing import Final

_QUESTION_MARKS: Final = frozenset("?？؟⸮")
_GREEK_QUESTION: Final = re.compile(r"[\u0370-\u03ff][;\u037e]\s*$")
_TASK_VERBS: Final = (
    "summari[sz]e|translate|explain|describe|rewrite|rephrase|reword|paraphrase|answer|compare|classify|analy[sz]e|"
    "extract|outline|proofread|refactor|convert|optimi[sz]e|simplify|shorten|improve|draft|respond|reply|review|"
    "critique|elaborate|categori[sz]e|brainstorm|debug|transcribe|list|write|generate|give me|tell me|show me|"
    "walk me through|help me|act as|pretend"
)
"""Verbs that request something of a model, and begin few statements of other texts."""
_PLAIN_VERBS: Final = (
    "give|find|identify|create|return|output|provide|tell|show|name|state|quote|"
    "cite|use|do|don't|do not|never|always|only|make|keep|ignore|include|exclude|focus|consider|assume|remember|"
    "note that|note:|check|fix|implement|add|remove|format|count|calculate|compute|solve|prove|verify|validate|"
    "evaluate|decide|choose|pick|rank|sort|highlight|correct|complete|continue|suggest|propose|recommend|estimate|"
    "imagine|be |stick to|avoid|mention|report|begin|start|end|let's|replace|rename|change|edit|merge|group|"
    "determine|discuss|define|justify|design|plan|rate|score|label|print|think|reason|judge"
)
_OTHER_VERBS: Final = (
    "fasse|fass|übersetze|erkläre|"
    "beschreibe|schreib|schreibe|nenne|antworte|beantworte|liste|gib|finde|vergleiche|erstelle|zähle|verwende|"
    "benutze|achte|résume[zr]?|tradui[st]|traduisez|explique[zr]?|décri[st]|décrivez|écri[st]|écrivez|répond[sz]?|"
    "répondez|donne[zr]?|liste[zr]?|cite[zr]?|trouve[zr]?|compare[zr]?|indique[zr]?|n'utilise|utilise[zr]?|resume|"
    "resuma|resumir|traduce|traduzca|traduz|explica|explique|describe|descreva|escribe|escriba|escreva|responde|"
    "responda|enumera|lista|liste|dime|diga|encuentra|encontre|compara|indica|indique|usa|use|riassumi|riassumere|"
    "traduci|spiega|descrivi|scrivi|rispondi|elenca|dimmi|trova|confronta|indica|vat|vertaal|leg|beschrijf|"
    "schrijf|antwoord|noem|geef|zoek|vergelijk|gebruik|streść|podsumuj|przetłumacz|wyjaśnij|opisz|napisz|"
    "odpowiedz|wymień|podaj|znajdź|porównaj|użyj|özetle|çevir|açıkla|yaz|cevapla|listele|bul|karşılaştır|ringkas|"
    "ringkaslah|terjemahkan|jelaskan|tulis|tuliskan|jawab|sebutkan|buat|bandingkan|gunakan|hãy|tóm tắt|dịch|"
    "giải thích|viết|trả lời|liệt kê|so sánh|sammanfatta|översätt|förklara|skriv|svara|lista|oversæt|forklar|"
    "sammenfat|svar|oppsummer|oversett|forklar|foglald|fordítsd|magyarázd|írd|írj|válaszolj|sorold|shrň|přelož|"
    "vysvětli|napiš|odpověz|vyjmenuj|rezumă|tradu|explică|scrie|răspunde|enumeră|кратко|"
    "(?:суммируй|резюмируй|перескажи|переведи|объясни|опиши|напиши|ответь|перечисли|назови|найди|сравни|укажи|выдели|"
    "используй|отвечай|сделай|подведи|составь|проанализируй|дай)(?:те)?|підсумуй(?:те)?|перекла(?:ди|діть)|"
    "поясн(?:и|іть)|опиш(?:и|іть)|напиш(?:и|іть)|дай(?:те)? відповідь|переліч(?:и|іть)|назв(?:и|іть)|"
    "знайд(?:и|іть)|порівняй(?:те)?|резюмуй(?:те)?|склад(?:и|іть)|"
    "tradu(?:cid|zcan)|resum(?:id|an)|expli(?:cad|quen)|descri(?:bid|ban)|escri(?:bid|ban)|respond(?:ed|an)|"
    "enumer(?:ad|en)|listad|listen|decidme|díganme|encontrad|encuentren|compar(?:ad|en)|indi(?:cad|quen)|us(?:ad|en)|"
    "(?:fassen|übersetzen|erklären|beschreiben|schreiben|nennen|antworten|beantworten|listen|geben|finden|vergleichen|"
    "erstellen|zählen|verwenden|benutzen|achten) sie"
)
_MORE_VERBS: Final = (
    "vastaa|kirjoita|käännä|selitä|tiivistä|kuvaile|luettele|vertaa|απάντησ(?:ε|τε)|απαντήστε|γράψ(?:ε|τε)"
    "|μετάφρασ(?:ε|τε)|μεταφράστε|εξήγησ(?:ε|τε)|εξηγήστε|περίληψη|συνόψισ(?:ε|τε)|συνοψίστε|περίγραψ(?:ε|τε)|απαρίθμησε"
    "|отговори|напиши|преведи|обясни|обобщи|опиши|изброй|одговори|преведи|објасни|odgovori|prevedi|objasni|sažmi|opiši"
    "|nabroji|odpovedz|napíš|prelož|vysvetli|zhrň|opíš|atsakyk|parašyk|išversk|paaiškink|apibendrink|atbildi|uzraksti"
    "|tulko|paskaidro|apkopo|vasta|kirjuta|tõlgi|selgita|võta kokku|respon|escriu|tradueix|explica|resumeix|descriu"
    "|jibu|andika|tafsiri|eleza|fupisha|orodhesha|sagutin|isulat|isalin|ipaliwanag|ibuod|svara|besvara|beskriv|besvar"
)
_VERBS: Final = f"{_TASK_VERBS}|{_PLAIN_VERBS}|{_OTHER_VERBS}|{_MORE_VERBS}"
_MARKS: Final = r"[\W\d_]*+(?:[a-z]{1,3}\)[\W_]*+)?"
"""Whatever stands before the words: bullets, numbers, boxes, arrows, marks of emphasis, and letters such as `a)`."""
_LEAD: Final = (
    rf"{_MARKS}(?:(?:and )?(?:now|then|also|finally|first|next|dann|nun|puis|ahora|теперь),? "
    r"|(?:for|in|from|with|if|after|before)\b[^,.\n]{1,60}, )?"
)
_IMPERATIVE: Final = re.compile(rf"{_LEAD}(?:{_VERBS})(?![^\W_])", re.IGNORECASE)
_TASK: Final = re.compile(rf"{_LEAD}(?:{_TASK_VERBS}|{_OTHER_VERBS}|{_MORE_VERBS})(?![^\W_])", re.IGNORECASE)
_POLITE: Final = re.compile(
    r"\b(?:please|kindly|you (?:must|should|are to|need to|will|may not|can't|cannot)|your (?:task|job|goal|answer"
    r"|response|reply)|make sure|be sure|instructions?:|i(?:'d| would)? (?:want|need|like) you to"
    r"|i'd like (?:a|an|to)\b"
    r"|bitte|du (?:sollst|musst)|sie (?:sollen|müssen)|s'il (?:te|vous) plaît|veuillez|merci de|vous devez|tu dois"
    r"|por favor|debes|debe|você deve|per favore|devi|alstublieft|alsjeblieft|proszę|lütfen|tolong|mohon|harap"
    r"|vui lòng|xin "
    r"|var vänlig|vänligen|kérem|prosím|te rog|vă rog|пожалуйста|будь ласка|παρακαλώ)\b",
    re.IGNORECASE,
)
_FINAL_VERB: Final = re.compile(
    # Turkish and Azerbaijani
    r"(?:(?<!\w)(?:(?:cevap|yanıt|örnek|bilgi|liste|cavab|misal) ver"
    r"|(?:tercüme|analiz|kontrol|dikkat|hesap|tərcümə|izah) et"
    r"|(?:özet|liste|tercüme|çeviri) yap|yanıtla|cevapla|özetle|çevir|açıkla|listele|sırala|karşılaştır|kullan|belirt"
    r"|söyle|anlat|göster|hesapla|düzelt|oluştur|kısalt|çıkar|ekle|tamamla|düzenle|tanımla|değerlendir|incele|yaz|bul"
    r"|cavabla|xülasə et|sadala|müqayisə et|istifadə et)(?:i?y?[iıuü]n(?:[iıuü]z)?)?(?: lütfen| lütfən)?"
    # Hungarian
    r"|(?<!\w)(?:válaszolj|válaszoljon|írj|írd le|írja le|fordítsd le|fordítsa le|foglald össze|foglalja össze"
    r"|magyarázd el|magyarázza el|sorold fel|sorolja fel)"
    # Hindi, Marathi and Nepali
    r"|(?<=\s)(?:दें|दो|दीजिए|दीजिये|करें|करो|कीजिए|कीजिये|लिखें|लिखो|लिखिए|बताएं|बताएँ|बताओ|बताइए|समझाएं|समझाएँ|समझाइए|बनाएं|बनाएँ|बनाओ"
    r"|द्या|करा|लिहा|सांगा|गर्नुहोस्|दिनुहोस्|लेख्नुहोस्)"
    # Bengali, Urdu, Persian, Tamil and Telugu
    r"|(?<=\s)(?:দিন|দাও|লিখুন|লেখো|করুন|করো|বলুন|বলো|دیں|کریں|کرو|لکھیں|لکھو|بتائیں|بتاؤ|بنائیں"
    r"|بنویس(?:ید)?|بده(?:ید)?|دهید|کن(?:ید)?|بگو(?:یید)?)"
    r"|(?<=\s)(?:எழுது|எழுதுங்கள்|எழுதவும்|பதிலளி|பதிலளிக்கவும்|செய்|செய்யவும்|கூறு|கூறவும்|వివరించండి|రాయండి|ఇవ్వండి|చేయండి"
    r"|చెప్పండి))[\s.!।۔\"'”’)*_]*\Z",
    re.IGNORECASE,
)
"""Imperative at the end of a sentence, where languages have it whose verb comes last."""
_FINAL_CHARS: Final = 60
_LABELLED: Final = re.compile(
    rf"{_MARKS}(?:important|reminder|attention|instructions?|task|your task|rules?|requirements?|constraints?"
    r"|p\.?\s?s\.?|n\.?b\.?|goal|hint|note|request|prompt|user|output|format|language|tone|style|update|edit|bonus"
    r"|step|exercise|wichtig|achtung|aufgabe|anweisung(?:en)?|hinweis|schritt|attention|consignes?|tâche|étape"
    r"|importante|atención|tarea|paso|compito|nota|важно|задача|重要|注意|任务|要求)\s?\d{0,3}[*_]*\s?[:：]",
    re.IGNORECASE,
)
_QUESTION_LABEL: Final = re.compile(
    rf"{_MARKS}(?:question|query|request|my question|frage|question à répondre|pregunta|pergunta|domanda|vraag"
    r"|pytanie|вопрос|питання|问题|問題|質問|질문|سؤال|प्रश्न|คำถาม|câu hỏi|soru)[*_]*\s?[:：]",
    re.IGNORECASE,
)
"""Label of a question, whatever words it is put in."""
_STANDING: Final = re.compile(
    r"\b(?:from now on|from here on|from this point|for the rest of|throughout (?:this|our)|in (?:all|each of) your"
    r"|(?:every|each|all) (?:answers?|repl(?:y|ies)|responses?|messages?)|always|never|until i (?:say|tell)"
    r"|ab (?:jetzt|sofort)|von (?:nun|jetzt) an|immer|niemals|in jeder antwort|désormais|dorénavant"
    r"|à partir de maintenant|toujours|jamais|a partir de ahora|de ahora en adelante|siempre|nunca|sempre"
    r"|d'ora in poi|d'ora in avanti|a partir de agora|vanaf nu|altijd|nooit|отныне|с этого момента|всегда|никогда)\b"
    r"|从现在(?:开始|起)|從現在|今后|今後|以后请|每次|始终|これから|毎回|앞으로|항상|من الآن",
    re.IGNORECASE,
)
_REQUEST: Final = re.compile(
    r"\b(?:please|kindly|your (?:task|job|goal) is|i(?:'d| would)? (?:want|need|like) you to|i'd like (?:a|an|to)\b"
    r"|(?:can|could|would|will) you\b|bitte|s'il (?:te|vous) plaît|veuillez|por favor|per favore|alstublieft"
    r"|alsjeblieft|proszę|lütfen|пожалуйста)\b",
    re.IGNORECASE,
)
_COMMENT: Final = re.compile(r"^\s*(?:[#;%]+|//+|--+|/?\*+|<!--)|(?<=\s)(?:#|//|--|/\*)(?=\s)")
_CELL_END: Final = re.compile(r"[|\t]|\"\s*[:,]\s*\"?|[\"'],|<!--|-->|</?[^<>!\n][^<>\n]{0,200}>|\*/")
_EDGES: Final = " \t\r\n\"'“”{}[]()<>*_`,;#/-•"
_REMARK: Final = re.compile(r"(?:TODO|FIXME|XXX|HACK|NOTE|BUG|OPTIMIZE)\b")
"""Mark of a remark to those who write the code."""
_SENTENCE_GAP: Final = re.compile(r"(?<=[.!?:;。！？])\s*(?=\S)")
_MIN_QUESTION_GAPS: Final = 2
_CODE_SIGN: Final = re.compile(r"[{}=;\\|&$<>@]|\w\(")
_INLINE: Final = re.compile(r"`[^`]{1,200}`|\"[^\"]{1,200}\"")
_PLAIN_WORD: Final = re.compile(r"[^\W\d_]+")
_FUNCTION_WORD: Final = re.compile(
    r"\b(?:the|this|that|these|those|above|below|my|me|your|you|it|its|a|an|and|with|to|in|of|for|please|so|is|are|does"
    r"|do|der|die|das|den|dem|diese[rsn]?|oben|le|la|les|cette|ce|el|los|las|esta|este|il|lo|questa|o|os|em|de|het|een)\b",
    re.IGNORECASE,
)
_MIN_SPOKEN_WORDS: Final = 3
_UNSPACED_WORDS: Final = re.compile(
    "请|請|總結|总结|概括|翻译|翻譯|回答|列出|解释|解釋|写一|寫一|告诉我|告訴我|描述一下|不要|务必|必须"
    "|ください|下さい|なさい|要約して|翻訳して|説明して|教えて|答えて|書いて|してはいけ|しないで"
    "|주세요|십시오|하세요|하시오|해줘|해 줘|알려|요약하|번역하|설명하|답하|작성하"
    "|กรุณา|โปรด|ช่วย|จงสรุป|สรุปให้|แปล|อธิบาย|ตอบ"
    "|कृपया|बताइए|बताएं|लिखें|लिखिए|दीजिए|कीजिए|अनुवाद कर|सारांश"
    "|من فضلك|يرجى|رجاء|لخص|لخّص|ترجم|اشرح|أجب|اكتب|اذكر|قارن|بیان کریں|لطفا|خلاصه کن|ترجمه کن|توضیح"
    "|בבקשה|סכם|תרגם|הסבר|ענה|כתוב|רשום"
)
_UNMARKED_QUESTION: Final = re.compile(r"(?:吗|嗎|呢|[ぁ-ん]か|까|나요|はいつ|은\?|ไหม|หรือไม่)[。.．\s]*$")
_QUESTION_WORD: Final = re.compile(
    r"\s*+(?:who|whom|whose|what|which|when|where|why|how|wer|was|wann|wo|warum|wieso|wie|welche[rs]?|qui|que"
    r"|quoi|quand|où|pourquoi|comment|quel(?:le)?s?"
    r"|quién|qué|cuándo|dónde|cómo|cuál|quem|quando|onde|chi|cosa|dove|wie|wat|waar|kto|co|kiedy|gdzie|кто|что"
    r"|когда|где|почему|как|какой|сколько)\b[^.!]*$",
    re.IGNORECASE,
)


def is_question(sentence: str) -> bool:
    """Return whether the sentence is a question."""
    stripped = sentence.rstrip()
    tail = stripped[-4:]
    if any(mark in tail for mark in _QUESTION_MARKS):
        return True
    if stripped.isascii():
        return False
    return bool(_UNMARKED_QUESTION.search(stripped[-12:]) or _GREEK_QUESTION.search(stripped[-4:]))


def instructs(sentence: str) -> bool:
    """Return whether the sentence tells its reader what to do."""
    start = sentence[:400]
    if _IMPERATIVE.match(start) or _POLITE.search(start) or _LABELLED.match(start) or _QUESTION_LABEL.match(start):
        return True
    return _ends_with_order(sentence) or (not start.isascii() and _UNSPACED_WORDS.search(start) is not None)


def is_task(sentence: str) -> bool:
    """Return whether the sentence requests something of a model, beyond what instructions to people look like."""
    start = sentence[:400]
    if _TASK.match(start) or _REQUEST.search(start) or _LABELLED.match(start) or _QUESTION_LABEL.match(start):
        return True
    if _ends_with_order(sentence):
        return True
    return not start.isascii() and (_POLITE.search(start) or _UNSPACED_WORDS.search(start)) is not None


def _ends_with_order(sentence: str) -> bool:
    """Return whether a sentence of several words ends with an imperative."""
    end = sentence.rstrip()[-_FINAL_CHARS:]
    return " " in end and _FINAL_VERB.search(end) is not None


def requests_within(text: str) -> bool:
    """Return whether a line, a cell or a string of a table, of JSON or of markup requests something of a model."""
    return any(_requests(cell) for line in text.splitlines() for cell in _CELL_END.split(line))


def instructs_within(text: str) -> bool:
    """Return whether a line, a cell or a string of a table, of JSON or of markup tells its reader what to do."""
    cells = (cell.strip(_EDGES) for line in text.splitlines() for cell in _CELL_END.split(line))
    return any(" " in cell and instructs(cell) for cell in cells)


def requests_beside_code(text: str) -> bool:
    """Return whether a comment, or a line of plain words, among code requests something of a model."""
    return any(
        is_spoken(line) or ((found := _COMMENT.search(line)) is not None and _requests(line[found.end() :]))
        for line in text.splitlines()
    )


def is_spoken(line: str) -> bool:
    """Return whether a line among code is a sentence to the reader that asks or instructs, and no code."""
    stripped = line.strip()
    if not stripped or not line[0].isalpha() or _CODE_SIGN.search(_INLINE.sub("", stripped)):
        return False
    if not (instructs(stripped) or is_question(stripped)):
        return False
    if not stripped.isascii():
        return True
    words = _PLAIN_WORD.findall(stripped)
    is_shouted = len(words[0]) > 1 and words[0].isupper() if words else True
    return len(words) >= _MIN_SPOKEN_WORDS and not is_shouted and _FUNCTION_WORD.search(stripped) is not None


def _requests(cell: str) -> bool:
    words = cell.strip(_EDGES)
    if " " not in words and words.isascii():
        return False
    if _REMARK.match(words):
        return False
    if is_question(words) and (words.count(" ") >= _MIN_QUESTION_GAPS or not words.isascii()):
        return True
    return any(map(is_task, _SENTENCE_GAP.split(words)))


def is_standing(sentence: str) -> bool:
    """Return whether the sentence tells its reader what to do in all that follows."""
    found = _STANDING.search(sentence)
    return found is not None and (instructs(sentence) or instructs(sentence[found.end() :].lstrip(" ,:，、")))


def is_open_question(text: str) -> bool:
    """Return whether a text begins as a question does, with or without its mark, or is labelled as one."""
    start = text[:400]
    return _QUESTION_WORD.match(start) is not None or _QUESTION_LABEL.match(start) is not None
