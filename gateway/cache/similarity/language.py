"""Whether a text is English, told by its small words: the encoder, the guards and the calibration know no other
language, and a "nicht" that nobody understands turns a question around."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_ENGLISH_WORDS: Final = """
a about after all also an and any are as at be because been before being best between but by can can't could did
do does doesn't doing don't down during each find for from get give had has have he her his how i i'm if in into
is isn't it its keep know let like made make many may me more most much must my need no not of on one only or
other our out over own per she should show since so some such take tell than that the their them then there
these they this those through to too under until up us use used using very want was way we were what what's when
where which while who whom whose why will with without work would you your
"""
_OTHER_WORDS: Final = """
aan aber această acest ad ada adalah af agar akan aki al ale algo alla alle alleen als ama anche ao aos apa
apakah ar atau att até au auf aus aux av avec avoir az azt aún ași bagaimana bagi bana bei berapa bez bij bin
bir bis bisa blev blir bliver bo boleh bu byl być být ca care ce cela ces cet cette che chez chi ci com combien
como con cosa csak cual cuando cum cuál cuáles cuándo cuánta cuánto cuántos czy cât cómo că da daha dal dalam
dalla dan dans dar dari das dass dat de deg degli dei del della delle dem den dengan denn denne depois depuis
der des desde det devo deze değil di die dig din dit dla dlaczego doar doch dois donde dopo dos dove du după
durch där dónde een efter egy ei ein eine einem einen einer eines el ela ele eles ella elle eller elles ellos em
en entre então er era es esa ese eso essa esse est esta este esto estou estoy está están et ett että eu ez ezt
faire fare faut fi fik finns foi fordi fra från fue få för før fără gdzie geen gegen gibt gli ha haar habe haben
hacer ham han hanno hanya har harus hasta hatte hay heb hebben heeft het hij ho hoe hoeveel hogy hogyan hol hon
hun hur hva hvad hvem hvilke hvilken hvis hvor hvordan hvorfor hvornår hän här ich ihr ik ikke il ile ils ini
inte io isso ist isto itu için j'ai ja jag jak jaka jaki jakie jaká jaké jaký je jeg jen jest jestem jetzt jij
jika joka jos jouw jsem jsou juga jusqu'à już já kadar kan kann kannst kanssa kapan karena kaç kde kdo kdy když
ke kein keine kell kenapa ki kiedy kita kolik koska která které který kto która które który kuin kuinka kun
kunnen können között l'on la las le lebih lehet leur leurs lhe lo loro los lui ma maar mag mai mais mam man mana
mas masz med meer meg mein meine mengapa mennyi mes met meu mezi mi mia mig mijn mikor miksi mikä millainen
milloin min mine minha minkä minä mio missä mit miten mitä miért mnie moet mogę mohu moi mon może można mu muito
muss mutta muy mycket mye myös más må même mü mı může na naar nach nad nas nasıl ne nebo neden nedir nel nella
nelle nem není nerede ni nicht nie niet niin noch nog non nos notre nous nu num numa nur não när nå någon når
nélkül ob och också od oder og også ohne olan olarak oleh olen olla olur om onde onko ook op os ou ovat où pada
par para pas pe pela pelo pentru perché pero peut peut-on peux più po poate pod pode por porque posso pot
pourquoi pra prima proč przed przez przy puede pueden puedo puis-je può på qu'est-ce quais qual quale quali
quand quando quanti quanto que quel quelle quelles quels quem questa questo qui quién quoi qué s sa saa sans sau
saya schon se sebagai seg sehr sei sein seine sekä sem senza ser ses seu si siamo sich sie sig sin sind sinä się
ska skal skulle sobre soll som sono sont sous soy su sua sudah suis sul sulla sunt suo sur sus são så sí să są
ta tai tak también também tanpa te tegen tego tem tengo tenho tes tetapi tidak tiene til till todo tot tra très
tu tutti tylko tym tämä ud uit uma un un'altra una unas und unde une uno unos uns unser unter untuk upp usted ut
uten után už vaan vad vagy vai van var varför ve ved veel vem vers veya vi vid vil vilka vilken você vocês
voglio voi voiko vom von voor vos votre vous være waar waarom wann wanneer warum wat wel welche welchen welcher
welches welk welke wenn wer werden wie wieder wij wir wird więc wo wordt wurde ya yang yo yok za ze zich zijn
zonder zu zum zur zwischen än är çok être în über że že și
"""
"""Of German, Spanish, French, Italian, Portuguese, Dutch, Polish, Swedish, Danish and Norwegian, Turkish, Romanian,
Indonesian, Hungarian, Finnish and Czech, but for what is an English word as well."""

_ENGLISH: Final = frozenset(_ENGLISH_WORDS.split())
_OTHERS: Final = frozenset(_OTHER_WORDS.split())


def is_english(words: Iterable[str]) -> bool:
    """Whether other languages' small words, and words with letters that English lacks, are fewer than two or no more
    than the English ones.

    Lower-case words. A few words without any small one among them are taken for English: names and codes are.
    """
    num_english = num_others = 0
    for word in words:
        if word in _ENGLISH:
            num_english += 1
        elif word in _OTHERS or not word.isascii():
            num_others += 1
    return num_others < 2 or num_others <= num_english
