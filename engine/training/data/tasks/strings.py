"""String work: repeat, pick, join, count, reverse, sort."""

import random

from engine.training.data.example import Difficulty, Example, Frames, Split, user
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
    ("Join with {n}s: {x}", "Put {n}s between these words: {x}", "Connect these words with {n}s: {x}",
     "Write these words with {n}s between them: {x}", "Join this list with {n}s: {x}", "Please connect with {n}s: {x}",
     "Use {n}s to join: {x}"),
    ("Join these words with {n}s: {x}", "Connect with {n}s: {x}"))  # fmt: skip
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
ORDINALS = ("first", "second", "third", "fourth")


def make(rng: random.Random, split: Split, difficulty: Difficulty) -> Example:
    """A string task with its result."""
    pool = {"easy": _EASY, "medium": _MEDIUM, "hard": _HARD}[difficulty]
    text, answer = rng.choice(pool)(rng, split)
    return Example(messages=(user(text),), answer=answer, task="strings", difficulty=difficulty)


def copying(rng: random.Random, split: Split, difficulty: Difficulty) -> Example:
    """Plain repetition of random words, dense practice in looking back; for training only."""
    words: list[str] = rng.sample(WORDS, rng.randint(6, 24))
    for _ in range(rng.randint(0, 4)):
        words[rng.randrange(len(words))] = rng.choice(
            (made_up_name(rng, split), rng.choice(SURNAMES), rng.choice(TOWNS))
        )
    text = rng.choice((" ", " ", ", ")).join(words)
    frame = REPEAT.pick(rng, split)
    return Example(messages=(user(frame.format(x=text)),), answer=text, task="copying", difficulty=difficulty)


def counting(rng: random.Random, split: Split, difficulty: Difficulty) -> Example:
    """Counting alone, dense practice in stopping at the number that was named; for training only."""
    text, answer = _count(rng, split)
    return Example(messages=(user(text),), answer=answer, task="counting", difficulty=difficulty)


def _words(rng: random.Random, low: int, high: int) -> list[str]:
    return rng.sample(WORDS, rng.randint(low, high))


def _repeat(rng: random.Random, split: Split) -> tuple[str, str]:
    words = _words(rng, 2, 10)
    if rng.random() < 0.4:
        words.insert(rng.randrange(len(words)), made_up_name(rng, split))
    if rng.random() < 0.3:
        words.append(str(rng.randint(10, 999)))
    text = " ".join(words)
    return REPEAT.pick(rng, split).format(x=text), text


def _repeat_long(rng: random.Random, split: Split) -> tuple[str, str]:
    words = [rng.choice(WORDS) for _ in range(rng.randint(25, 60))]
    for _ in range(rng.randint(1, 5)):
        words[rng.randrange(len(words))] = made_up_name(rng, split)
    return REPEAT.pick(rng, split).format(x=" ".join(words)), " ".join(words)


def _first_or_last(rng: random.Random, split: Split) -> tuple[str, str]:
    words = _words(rng, 2, 7)
    which = rng.choice(("first", "last"))
    return PICK.pick(rng, split).format(w=which, x=", ".join(words)), words[0 if which == "first" else -1]


def _pick(rng: random.Random, split: Split) -> tuple[str, str]:
    words = _words(rng, 4, 8)
    index = rng.randrange(1, 4)
    return PICK.pick(rng, split).format(w=ORDINALS[index], x=", ".join(words)), words[index]


def _join(rng: random.Random, split: Split) -> tuple[str, str]:
    words = _words(rng, 2, 5)
    name, mark = rng.choice((("hyphen", "-"), ("plus sign", "+"), ("slash", "/")))
    plural = "slashe" if name == "slash" else name
    return JOIN.pick(rng, split).format(n=plural, x=" ".join(words)), mark.join(words)


def _count(rng: random.Random, split: Split) -> tuple[str, str]:
    low = rng.randint(1, 80)
    high = low + rng.randint(3, 15)
    return COUNT.pick(rng, split).format(a=low, b=high), " ".join(map(str, range(low, high + 1)))


def _reverse(rng: random.Random, split: Split, low: int = 3, high: int = 4) -> tuple[str, str]:
    words = _words(rng, low, high)
    return REVERSE.pick(rng, split).format(x=", ".join(words)), ", ".join(reversed(words))


def _reverse_long(rng: random.Random, split: Split) -> tuple[str, str]:
    if rng.random() < 0.5:
        letters = rng.sample(LETTERS, rng.randint(6, 9))
        return REVERSE.pick(rng, split).format(x=" ".join(letters)), " ".join(reversed(letters))
    return _reverse(rng, split, 6, 9)


def _sort(rng: random.Random, split: Split) -> tuple[str, str]:
    words = _words(rng, 4, 6)
    return SORT.pick(rng, split).format(x=", ".join(words)), ", ".join(sorted(words))


def _tally(rng: random.Random, split: Split) -> tuple[str, str]:
    words = _words(rng, 3, 6)
    times = rng.randint(1, 4)
    listed = words[1:] + [words[0]] * times
    rng.shuffle(listed)
    return TALLY.pick(rng, split).format(w=words[0], x=", ".join(listed)), str(times)


_EASY = (_repeat, _repeat, _first_or_last, _join, _count)
_MEDIUM = (_pick, _reverse, _tally, _repeat_long)
_HARD = (_reverse_long, _reverse_long, _sort)
