"""Meetings with facts hidden in them, and questions about the facts, in the words of the fact or in other words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

_PEOPLE_NAMES = (
    "Anna Boris Carla Dmitri Elena Farid Greta Hugo Ines Jonas Keiko Lars Mina Noor Olga Pavel Quinn Rosa Samir Tove "
    "Ulla Viktor Wanda Xenia Yusuf Zora"
)
_PEOPLE = _PEOPLE_NAMES.split()
_PLACES = [
    "Lisbon",
    "Oslo",
    "Dakar",
    "Quito",
    "Osaka",
    "Gdansk",
    "Turin",
    "Bergen",
    "Porto",
    "Leipzig",
    "Nantes",
    "Malmo",
    "Tartu",
    "Split",
    "Aarhus",
]
_PROJECTS = [
    "Heron",
    "Lynx",
    "Cobalt",
    "Juniper",
    "Marlin",
    "Saffron",
    "Quartz",
    "Thistle",
    "Ember",
    "Pelican",
    "Willow",
    "Onyx",
    "Falcon",
    "Cedar",
]
_TOPICS = [
    "the release",
    "the hiring plan",
    "the new office",
    "the support queue",
    "the billing page",
    "the test coverage",
    "the warehouse",
    "the customer survey",
    "the travel rules",
    "the data center",
    "the mobile app",
    "the marketing campaign",
    "the quarterly report",
    "the onboarding guide",
    "the security audit",
    "the supplier contract",
    "the training day",
    "the intranet",
    "the pricing page",
]
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"]
_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]

_FILLER = (
    "I think {topic} needs another look before we commit to anything.",
    "We talked about {topic} last week and nothing has changed since then.",
    "{person} asked me about {topic} again yesterday.",
    "Let's not go too deep into {topic} right now.",
    "Can someone write down an action item for {topic}?",
    "I agree with {person}, we should be careful there.",
    "That depends on what {person} hears from the team in {place}.",
    "Sorry, I was on mute, what I meant is that {topic} is fine for now.",
    "The numbers for {topic} look about the same as in {month}.",
    "I'll follow up with {person} after the call.",
    "Does anybody have an opinion on {topic}?",
    "We could move {topic} to the next meeting.",
    "Project {project} is on track as far as I know.",
    "The people on project {project} have been asking for more time.",
    "I was in {place} on {day} and the weather was terrible.",
    "Good point, {person}.",
    "Okay, so next on the agenda is {topic}.",
    "My main worry about {topic} is that nobody owns it.",
    "We got some feedback on {topic} from {place}, mostly positive.",
    "There is a draft about {topic} in the shared folder.",
    "I would rather wait until {month} before we decide on {topic}.",
    "The budget for {topic} has not been discussed with {person} yet.",
    "{person} and {person2} are looking into {topic} together.",
    "Honestly, {topic} takes more of our time than it should.",
    "Before I forget, {person} is on vacation from {day}.",
    "The deadline for {topic} was a little ambitious.",
    "We can ask {place} to help us with {topic}.",
    "I have no strong feelings about {topic} either way.",
    "Let me share my screen for a second.",
    "Yes, exactly.",
    "Right, that makes sense to me.",
    "Could you repeat the last part, {person}?",
    "The call with the customer about project {project} went well.",
    "We had around {number} visitors on that page in {month}.",
    "It cost us {number} hours last month, which is not dramatic.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Needle:
    """A fact and two questions about it."""

    fact: str
    question: str
    """Question in words of the fact."""
    paraphrase: str
    """Question in other words; at most a name is the same."""


def needle(rng: Random) -> Needle:
    """Return a fact of a random kind."""
    person, place, project = rng.choice(_PEOPLE), rng.choice(_PLACES), rng.choice(_PROJECTS)
    number, day, month = rng.randint(12, 980), rng.choice(_DAYS), rng.choice(_MONTHS)
    code = f"{rng.choice('ABCDEFGHKLMN')}{rng.choice('PQRSTUVWXYZ')}-{rng.randint(1000, 9999)}"
    kinds = (
        (
            f"The budget of project {project} was set to {number} thousand euros.",
            f"What is the budget of project {project}?",
            f"How much money may {project} spend?",
        ),
        (
            f"{person} will lead project {project} from {month} on.",
            f"Who will lead project {project}?",
            f"Which person becomes the head of {project}?",
        ),
        (
            f"The door code of the {place} office is now {code}.",
            f"What is the door code of the {place} office?",
            f"How do I get into the building in {place}?",
        ),
        (
            f"We decided to postpone the launch of {project} to {day}, {month} {number % 27 + 1}.",
            f"To when did we postpone the launch of {project}?",
            f"On what date does {project} go live?",
        ),
        (
            f"The invoice from the caterer in {place} came to {number} euros.",
            f"How much was the invoice from the caterer in {place}?",
            f"What did the food in {place} cost?",
        ),
        (
            f"{person} found that the outage was caused by an expired certificate.",
            f"What caused the outage that {person} found?",
            "Why was the service down?",
        ),
        (
            f"The supplier in {place} raised its price by {number % 40 + 3} percent.",
            f"By how much did the supplier in {place} raise its price?",
            f"How much more expensive is the vendor from {place} now?",
        ),
        (
            f"{person} prefers that the workshop takes place in {place}.",
            f"Where does {person} prefer that the workshop takes place?",
            f"Which city would {person} like for the seminar?",
        ),
        (
            f"The backup server is stored in rack {code}.",
            "In which rack is the backup server stored?",
            "Where can I find the spare machine?",
        ),
        (
            f"Our contract with the landlord in {place} ends in {month}.",
            f"When does our contract with the landlord in {place} end?",
            f"Until which month do we rent in {place}?",
        ),
        (
            f"{person} is allergic to peanuts, so keep that in mind for the dinner.",
            f"What is {person} allergic to?",
            f"Which food must {person} not eat?",
        ),
        (
            f"The password for the guest network is bluebird{number}.",
            "What is the password for the guest network?",
            "How can a visitor get onto the wifi?",
        ),
    )
    fact, question, paraphrase = rng.choice(kinds)
    return Needle(fact=fact, question=question, paraphrase=paraphrase)


def meeting(rng: Random, num_bytes: int, facts: list[str], *, is_labelled: bool) -> str:
    """Return a transcript of about this size, with the facts at random positions.

    Args:
        rng: Random numbers.
        num_bytes: Size in bytes.
        facts: Sentences to hide.
        is_labelled: True for a line with its speaker per utterance, False for paragraphs of prose.
    """
    sentences: list[str] = []
    size = 0
    filler = _filler(rng)
    while size < num_bytes:
        sentences.append(next(filler))
        size += len(sentences[-1]) + 1
    for fact in facts:
        sentences.insert(rng.randint(1, len(sentences) - 1), fact)
    utterances = []
    place = 0
    while place < len(sentences):
        count = rng.randint(1, 4)
        spoken = " ".join(sentences[place : place + count])
        utterances.append(f"{rng.choice(_PEOPLE)}: {spoken}" if is_labelled else spoken)
        place += count
    return "\n".join(utterances) if is_labelled else _paragraphs(utterances)


def _paragraphs(utterances: list[str]) -> str:
    return "\n\n".join(" ".join(utterances[place : place + 5]) for place in range(0, len(utterances), 5))


def _filler(rng: Random) -> Iterator[str]:
    while True:
        yield rng.choice(_FILLER).format(
            topic=rng.choice(_TOPICS),
            person=rng.choice(_PEOPLE),
            person2=rng.choice(_PEOPLE),
            place=rng.choice(_PLACES),
            project=rng.choice(_PROJECTS),
            day=rng.choice(_DAYS),
            month=rng.choice(_MONTHS),
            number=rng.randint(2, 900),
        )
