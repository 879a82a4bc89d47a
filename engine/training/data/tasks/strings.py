"""String task: repeat, pick, join, count, reverse, sort."""

import random
from collections.abc import Callable, Mapping

from engine.training.data.example import Difficulty, Example, Frames, Split, user
from engine.training.data.forms import in_a_case, in_a_manner, pick_form
from engine.training.data.words import LETTERS, SURNAMES, TOWNS, WORDS, made_up_name

REPEAT = Frames(
    ("Repeat: {x}", "Say this again: {x}", "Repeat after me: {x}", "Copy this text: {x}", "Write exactly this: {x}",
     "Echo: {x}",
     "Please repeat these words: {x}", "Type the following: {x}", "Please say exactly: {x}", "Copy: {x}",
     "Repeat this: {x}", "Please write this text again: {x}"),
    ("Repeat this text: {x}", "Please copy this: {x}", "Say exactly this: {x}"))  # fmt: skip
PICK = Frames(
    ("What is the {w} word of: {x}", "Give me the {w} word in this list: {x}", "Which word is {w} here? {x}",
     "{w} word: {x}",
     "Tell me the {w} word of this list: {x}", "Take the {w} word from: {x}", "Please give me the {w} word: {x}",
     "Which is the {w} one? {x}", "Find the {w} word of this list: {x}"),
    ("What is the {w} word in this list: {x}", "Which is the {w} word of: {x}"))  # fmt: skip
JOIN = Frames(
    ("Join with {n}: {x}", "Put {n} between these words: {x}", "Connect these words with {n}: {x}",
     "Write these words with {n} between them: {x}", "Join this list with {n}: {x}", "Please connect with {n}: {x}",
     "Use {n} to join: {x}", "Join with a {o}: {x}", "Join these with a {o}: {x}", "Use a {o} to connect: {x}"),
    ("Join these words with {n}: {x}", "Connect with {n}: {x}", "Connect these with a {o}: {x}"))  # fmt: skip
COUNT = Frames(
    ("Count from {a} to {b}.", "List the numbers from {a} to {b}.",
     "Write all numbers between {a} and {b}, both included.",
     "Please count up from {a} to {b}.", "Count: {a} to {b}.", "Could you count from {a} up to {b}?",
     "Give me the numbers from {a} to {b}.", "Start with {a} and count up to {b}.", "Please write {a} to {b}.",
     "Count {a} to {b}, please.", "Numbers from {a} to {b}, please.", "Write out {a} to {b}.",
     "Write down the numbers {a} to {b}.", "Write every number from {a} to {b}.",
     "Can you write the numbers {a} to {b}?",
     "Please list {a} to {b}.", "I need the numbers from {a} to {b}.", "Say the numbers from {a} to {b}.",
     "Show the numbers from {a} up to {b}.", "Begin at {a}, count, and stop at {b}.",
     "Count upwards from {a} until {b}.",
     "Counting from {a} to {b}, please.", "Print the numbers {a} to {b}."),
    ("Please count from {a} to {b}.", "Write the numbers from {a} to {b}."))  # fmt: skip
COUNT_TO = Frames(
    ("Count to {b}.", "Count up to {b}.", "Please count up to {b}.", "Count from one to {b}.", "Can you count to {b}?",
     "Count to {b}, please.", "Could you count up to {b}?", "Count until {b}.", "I want you to count to {b}.",
     "List the numbers up to {b}.", "Write the numbers up to {b}.", "Start at one and count to {b}.",
     "Give me the numbers up to {b}."),
    ("Please count to {b}.", "Could you count to {b}?", "Say the numbers up to {b}."))  # fmt: skip
COUNT_DOWN = Frames(
    ("Count down from {a} to {b}.", "Count backwards from {a} to {b}.", "Please count down from {a} to {b}.",
     "Count from {a} down to {b}.", "Count down: {a} to {b}.", "List the numbers from {a} down to {b}.",
     "Start at {a} and count down to {b}.", "Can you count down from {a} to {b}?"),
    ("Please count backwards from {a} to {b}.", "Write the numbers from {a} down to {b}."))  # fmt: skip
REVERSE = Frames(
    ("Reverse the order: {x}", "Write these backwards: {x}", "Reverse this list: {x}", "Turn the order around: {x}",
     "Say these in reverse order: {x}", "Start at the end and list: {x}", "Please turn this list around: {x}",
     "List this from last to first: {x}", "Reverse: {x}"),
    ("Please reverse this list: {x}", "List these in reverse order: {x}"))  # fmt: skip
SORT = Frames(
    ("Sort alphabetically: {x}", "Put in alphabetical order: {x}", "Sort these words from A to Z: {x}",
     "Order by alphabet: {x}",
     "Arrange these alphabetically: {x}", "Please sort from A to Z: {x}", "Sort this list by the alphabet: {x}",
     "In alphabetical order, please: {x}"),
    ("Sort these words alphabetically: {x}", "Put these words in alphabetical order: {x}"))  # fmt: skip
TALLY = Frames(
    ("How many times is {w} in this list? {x}", "Count how often {w} appears: {x}", "How often do you see {w}? {x}",
     "Number of times {w} occurs: {x}", "Tally {w}: {x}", "Count {w} in this list: {x}",
     "How often does {w} come up? {x}",
     "In this list, how many times is {w}? {x}", "Please count how many {w} there are: {x}", "Count every {w}: {x}",
     "How often is the word {w} here? {x}", "How many {w} are in this list? {x}", "Count all the words {w}: {x}",
     "In this list, how often is the word {w}? {x}", "Count the number of {w}: {x}", "Please tally the word {w}: {x}",
     "How many times do you read {w}? {x}", "Say how often {w} is listed: {x}", "Find every {w} and count them: {x}",
     "How often is {w} listed? {x}", "The word {w}: how many times is it here? {x}", "How many words are {w}? {x}"),
    ("How often is {w} in this list? {x}", "Count the word {w}: {x}"))  # fmt: skip
ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth")
ORDINAL_DIGITS = ("1st", "2nd", "3rd", "4th", "5th", "6th")
MARKS: Mapping[str, tuple[str, str]] = {"hyphen": ("hyphens", "-"), "plus sign": ("plus signs", "+"),
                                        "slash": ("slashes", "/")}  # fmt: skip
SEPARATORS = (", ", ", ", " ")
Draw = Callable[[random.Random, Split], tuple[str, str]]


def make(rng: random.Random, split: Split, difficulty: Difficulty) -> Example:
    """Return a string task with its result."""
    form, draw = pick_form(rng, FORMS[difficulty])
    text, answer = draw(rng, split)
    return Example(messages=(user(text),), answer=answer, task="strings", difficulty=difficulty, form=form)


def copying(rng: random.Random, split: Split, difficulty: Difficulty) -> Example:
    """Return plain repetition of random words, as dense practice in copying; for training only."""
    words: list[str] = rng.sample(WORDS, rng.randint(6, 24))
    for _ in range(rng.randint(0, 4)):
        words[rng.randrange(len(words))] = rng.choice(
            (made_up_name(rng, split), rng.choice(SURNAMES), rng.choice(TOWNS))
        )
    text = rng.choice((" ", " ", ", ")).join(words)
    frame = REPEAT.pick(rng, split)
    return Example(messages=(user(frame.format(x=text)),), answer=text, task="copying", difficulty=difficulty)


def counting(rng: random.Random, split: Split, difficulty: Difficulty) -> Example:
    """Return a counting task, as dense practice in stopping at the given number; for training only."""
    form, draw = pick_form(rng, COUNTING)
    text, answer = draw(rng, split)
    return Example(messages=(user(text),), answer=answer, task="counting", difficulty=difficulty, form=form)


def _words(rng: random.Random, low: int, high: int) -> list[str]:
    return rng.sample(WORDS, rng.randint(low, high))


def _frame(rng: random.Random, split: Split, frames: Frames) -> str:
    return in_a_case(rng, frames.pick(rng, split))


def _repeat(rng: random.Random, split: Split) -> tuple[str, str]:
    words = _words(rng, 1, 10)
    if rng.random() < 0.4:
        words.insert(rng.randrange(len(words)), made_up_name(rng, split))
    if rng.random() < 0.3:
        words.append(str(rng.randint(0, 999)))
    text = " ".join(words)
    return _frame(rng, split, REPEAT).format(x=text), text


def _repeat_one(rng: random.Random, split: Split) -> tuple[str, str]:
    text = rng.choice((rng.choice(WORDS), made_up_name(rng, split), str(rng.randint(0, 999))))
    return _frame(rng, split, REPEAT).format(x=text), text


def _repeat_long(rng: random.Random, split: Split) -> tuple[str, str]:
    words = [rng.choice(WORDS) for _ in range(rng.randint(25, 60))]
    for _ in range(rng.randint(1, 5)):
        words[rng.randrange(len(words))] = made_up_name(rng, split)
    return _frame(rng, split, REPEAT).format(x=" ".join(words)), " ".join(words)


def _first_or_last(rng: random.Random, split: Split) -> tuple[str, str]:
    words = _words(rng, 1, 8)
    which = rng.choice(("first", "last"))
    text = _frame(rng, split, PICK).format(w=which, x=rng.choice(SEPARATORS).join(words))
    return text, words[0 if which == "first" else -1]


def _pick(rng: random.Random, split: Split) -> tuple[str, str]:
    index = rng.randrange(1, len(ORDINALS))
    words = _words(rng, index + 1, 8)
    ordinal = ORDINALS[index] if rng.random() < 0.7 else ORDINAL_DIGITS[index]
    return _frame(rng, split, PICK).format(w=ordinal, x=rng.choice(SEPARATORS).join(words)), words[index]


def _join(rng: random.Random, split: Split) -> tuple[str, str]:
    words = _words(rng, 1, 6)
    name = rng.choice(tuple(MARKS))
    plural, mark = MARKS[name]
    text = _frame(rng, split, JOIN).format(n=plural, o=name, x=rng.choice((" ", " ", ", ")).join(words))
    return text, mark.join(words)


def _count(rng: random.Random, split: Split) -> tuple[str, str]:
    low = rng.randint(0, rng.choice((1, 9, 99)))
    return _counted(rng, split, low, low + rng.randint(1, 18))


def _count_far(rng: random.Random, split: Split) -> tuple[str, str]:
    low = rng.randint(0, rng.choice((1, 70)))
    return _counted(rng, split, low, low + rng.randint(19, 30))


def _count_to(rng: random.Random, split: Split) -> tuple[str, str]:
    return _counted_to(rng, split, rng.randint(1, 30))


def _count_to_far(rng: random.Random, split: Split) -> tuple[str, str]:
    return _counted_to(rng, split, rng.randint(31, 50))


def _count_down(rng: random.Random, split: Split) -> tuple[str, str]:
    low = rng.randint(0, rng.choice((1, 1, 40)))
    high = low + rng.randint(1, 15)
    text = in_a_manner(rng, split, COUNT_DOWN.pick(rng, split)).format(a=high, b=low)
    return text, " ".join(map(str, range(high, low - 1, -1)))


def _counted(rng: random.Random, split: Split, low: int, high: int) -> tuple[str, str]:
    text = in_a_manner(rng, split, COUNT.pick(rng, split)).format(a=low, b=high)
    return text, " ".join(map(str, range(low, high + 1)))


def _counted_to(rng: random.Random, split: Split, high: int) -> tuple[str, str]:
    text = in_a_manner(rng, split, COUNT_TO.pick(rng, split)).format(b=high)
    return text, " ".join(map(str, range(1, high + 1)))


def _turned(rng: random.Random, split: Split, items: list[str], separator: str) -> tuple[str, str]:
    return _frame(rng, split, REVERSE).format(x=separator.join(items)), separator.join(reversed(items))


def _reverse(rng: random.Random, split: Split) -> tuple[str, str]:
    return _turned(rng, split, _words(rng, 2, 5), rng.choice(SEPARATORS))


def _reverse_letters(rng: random.Random, split: Split) -> tuple[str, str]:
    return _turned(rng, split, rng.sample(LETTERS, rng.randint(2, 5)), rng.choice((" ", " ", ", ")))


def _reverse_long(rng: random.Random, split: Split) -> tuple[str, str]:
    return _turned(rng, split, _words(rng, 6, 9), rng.choice(SEPARATORS))


def _reverse_many_letters(rng: random.Random, split: Split) -> tuple[str, str]:
    return _turned(rng, split, rng.sample(LETTERS, rng.randint(6, 9)), rng.choice((" ", " ", ", ")))


def _sorted(rng: random.Random, split: Split, words: list[str]) -> tuple[str, str]:
    separator = rng.choice(SEPARATORS)
    return _frame(rng, split, SORT).format(x=separator.join(words)), separator.join(sorted(words))


def _sort_few(rng: random.Random, split: Split) -> tuple[str, str]:
    return _sorted(rng, split, _words(rng, 2, 3))


def _sort(rng: random.Random, split: Split) -> tuple[str, str]:
    return _sorted(rng, split, _words(rng, 4, 6))


def _tally(rng: random.Random, split: Split) -> tuple[str, str]:
    words = _words(rng, 2, 6)
    times = rng.randint(0, 5)
    listed = words[1:] + [words[0]] * times
    rng.shuffle(listed)
    text = _frame(rng, split, TALLY).format(w=words[0], x=rng.choice(SEPARATORS).join(listed))
    return text, str(times)


COUNTING: Mapping[str, Draw] = {
    "count": _count, "count far": _count_far, "count to": _count_to, "count to far": _count_to_far,
    "count down": _count_down,
}  # fmt: skip
FORMS: Mapping[Difficulty, Mapping[str, Draw]] = {
    "easy": {
        "repeat": _repeat, "repeat one": _repeat_one, "first or last": _first_or_last, "join": _join, "count": _count,
        "count to": _count_to,
    },
    "medium": {
        "pick": _pick, "reverse": _reverse, "reverse letters": _reverse_letters, "sort few": _sort_few, "tally": _tally,
        "repeat long": _repeat_long, "count far": _count_far, "count to far": _count_to_far, "count down": _count_down,
    },
    "hard": {"reverse long": _reverse_long, "reverse many letters": _reverse_many_letters, "sort": _sort},
}  # fmt: skip
