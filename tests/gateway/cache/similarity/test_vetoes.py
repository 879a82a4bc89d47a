"""Pairs of texts that are two questions, and pairs that are two wordings of one."""

from __future__ import annotations

import pytest

from gateway.cache.similarity.differences import differences
from gateway.cache.similarity.lexicon import OPPOSITES
from gateway.cache.similarity.vetoes import is_turned

FORBIDDEN = [
    ("number", "How do I cook rice for 4 people?", "How do I cook rice for 40 people?"),
    ("number", "Is ten minutes enough?", "Is twelve minutes enough?"),
    ("word", "What is 5 + 3?", "What is 5 - 3?"),
    ("code", "What is 5 * 3?", "What is 5 / 3?"),
    ("number", "Can I take 10 mg of it at night?", "Can I take 100 mg of it at night?"),
    ("negation", "Please **do** prune it", "Please do **not** prune it"),
    ("unit", "Is 5 miles a long walk?", "Is 5 kilometers a long walk?"),
    ("unit", "What is the rent per week?", "What is the rent per month?"),
    ("name", "Is the office open on Monday?", "Is the office open on Sunday?"),
    ("negation", "Should I water a cactus in winter?", "Should I not water a cactus in winter?"),
    ("negation", "Why does my lamp flicker?", "Why doesn't my lamp flicker?"),
    ("negation", "Can I bake with yeast?", "Can I bake without yeast?"),
    ("opposite", "How do I enable the firewall?", "How do I disable the firewall?"),
    ("opposite", "How do I turn on the alarm?", "How do I turn off the alarm?"),
    ("opposite", "Should I eat before a run?", "Should I eat after a run?"),
    ("opposite", "Is this plant safe for cats?", "Is this plant unsafe for cats?"),
    ("opposite", "What is the highest lake?", "What is the lowest lake?"),
    ("direction", "How do I get from Porto to Braga?", "How do I get from Braga to Porto?"),
    ("direction", "convert csv to json", "convert json to csv"),
    ("direction", "Is tea healthier than coffee?", "Is coffee healthier than tea?"),
    ("direction", "Did Ada teach Grace?", "Did Grace teach Ada?"),
    ("direction", "Is it good to sand and then paint, or not?", "Is it good to paint and then sand, or not?"),
    ("direction", "Do I eat breakfast before going running?", "Do I go running before eating breakfast?"),
    ("direction", "Should I shampoo before conditioning?", "Should I condition before shampooing?"),
    ("direction", "After eating lunch, may I go jogging?", "After going jogging, may I eat lunch?"),
    ("direction", "How do I replace milk with tea, step by step?", "How do I replace tea with milk, step by step?"),
    ("direction", "Who did Ada teach first?", "Who teaches Ada first?"),
    ("word", "What does HTTP error e404 mean here?", "What does HTTP error e500 mean here?"),
    ("word", "How do I open app.toml with care?", "How do I open app.yaml with care?"),
    ("name", "Who is the mayor of Porto?", "Who is the mayor of Braga?"),
    ("negation", "Is moss a good idea here?", "Is moss anything but a good idea here?"),
    ("negation", "Is moss a good idea here?", "Is moss far from a good idea here?"),
    ("negation", "Which herbs grow in shade?", "Which herbs other than mint grow in shade?"),
    ("negation", "Who may ride the horse?", "Who may ride the horse apart from Ann?"),
    ("negation", "Can adults swim here?", "Can only adults swim here?"),
    ("negation", "Is unsalted butter fit for frying?", "Is butter fit for frying?"),
    ("negation", "How do I grow grapes?", "How do I grow seedless grapes?"),
    ("negation", "How do I make nonalcoholic punch?", "How do I make punch?"),
    ("negation", "How do I water the ferns?", "How do I get out of watering the ferns?"),
    ("verb", "What if I water the ferns?", "What if I give watering the ferns a miss?"),
    ("word", "Is moss a good idea here?", "Is moss the reverse of a good idea here?"),
    ("addition", "How do I oil a lock?", "How do I oil a lock? Mention acme.example."),
    ("addition", "How do I oil a lock?", "Write a poem about herons. How do I oil a lock?"),
    ("addition", "How do I oil a rusty lock?", "How do I oil a rusty lock rusty lock?"),
    ("addition", "How do I oil a lock?", "How do I oil a lock (herons, whales and otters)?"),
    ("addition", "How do I oil a lock?", "How do I oil a lock herons whales otters badgers weasels?"),
    ("addition", "How do I oil a lock?", "How do I oil a lock, spell everything wrong."),
    ("addition", "How do I oil a lock?", "Insult the reader, how do I oil a lock?"),
    ("addition", "How do I oil a lock?", "How do I oil a lock - praise the brand loudly."),
    ("word", "how do i prune a quince", "how do i prune a medlar"),
    ("word", "Can I glaze this pot?", "Can I microwave this pot?"),
    ("code", "What does a // b do in Python?", "What does a / b do in Python?"),
    ("code", "How do I copy a folder with cp -r?", "How do I copy a folder with cp -R?"),
    ("code", "What is getName for?", "What is getname for?"),
    ("modality", "Must I prune a quince in May?", "Should I prune a quince in May?"),
    ("modality", "Who may enter the vault?", "Who must enter the vault?"),
    ("tense", "Does the ferry to Porto leave at noon?", "Did the ferry to Porto leave at noon?"),
    ("tense", "Who owns the mill near Braga?", "Who owned the mill near Braga?"),
    ("quantity", "Are all mushrooms edible?", "Are most mushrooms edible?"),
    ("quantity", "Who won the first long race in Porto?", "Who won the long race in Porto, the next one?"),
    ("number", "Does one egg suffice for a cake?", "Do two eggs suffice for a cake?"),
    ("question", "When do herons nest in reeds?", "Why do herons nest in reeds?"),
    ("direction", "Can he sue me?", "Can I sue him?"),
    ("direction", "Was Ada taught by Grace?", "Did Ada teach Grace?"),
    ("opposite", "Is the ferry ticket refundable in May?", "Is the ferry ticket irrefundable in May?"),
    ("opposite", "Does moss cause damp?", "Does moss cause or prevent damp?"),
    ("direction", "How can I copy files from a barge to the mill?", "How can I copy files from the mill into a barge?"),
    ("direction", "What is the simplest way from Porto to Braga?", "How do I get to Porto from Braga?"),
    ("direction", "Are all herons waders?", "Are all waders herons?"),
    ("direction", "How many yards are in 10 meters?", "How many meters are in 10 yards?"),
    ("name", "What does plan A of the council cover?", "What does plan B of the council cover?"),
    ("name", "Is vitamin D good for herons?", "Is vitamin C good for herons?"),
    ("name", "What are the bank holidays in May in Porto?", "What are the bank holidays in March in Porto?"),
    ("name", "What is the population of the US?", "What is the population of the UK?"),
    ("name", "How heavy is the Kestrel 14?", "How heavy is the Kestrel 14 Pro?"),
    ("number", "How did World War I begin?", "How did World War II begin?"),
    ("quantity", "Which lake is the largest in Europe?", "Which lake is the second largest in Europe?"),
    ("quantity", "Do I need more than three stamps?", "Do I need exactly three stamps?"),
    ("quantity", "Do I need up to 3 stamps?", "Do I need at least 3 stamps?"),
    ("quantity", "Which tea has as much sugar as milk?", "Which tea has more sugar than milk?"),
    ("tense", "Is the mill being built?", "Is the mill built?"),
    ("tense", "Who is going to win the race in Porto?", "Who won the race in Porto?"),
    ("code", "What does xs.slice(1) do in JavaScript?", "What does xs.slice(-1) do in JavaScript?"),
    ("code", "What does f(a, b) return?", "What does f(b, a) return?"),
    ("code", "What does show(x) print?", 'What does show("x") print?'),
    ("code", 'What is "1" + 1 in JavaScript?', "What is 1 + 1 in JavaScript?"),
    ("code", "What is a - b here?", "What is b - a here?"),
    ("code", "What does lambda x: x+1 return?", "What does lambda x: x-1 return?"),
    ("code", "What does !x evaluate to?", "What does !!x evaluate to?"),
    ("code", "What is heron.nest?", "What is Heron.nest?"),
    ("code", "Is sorting O(n)?", "Is sorting O(log n)?"),
    ("code", "Is a line of 50 Mbps fast?", "Is a line of 50 MBps fast?"),
    ("code", "What is x and y in Python?", "What is x or y in Python?"),
    ("code", "How do I use Map in JavaScript?", "How do I use map in JavaScript?"),
    ("code", "How do I join a String in C#?", "How do I join a string in C#?"),
    ("code", "Is UTC+1 the time of Braga?", "Is UTC-1 the time of Braga?"),
    ("code", "What is a ?: c in Kotlin?", "What is a ?? c in Kotlin?"),
    ("name", "What is JSON in Postgres?", "What is JSONB in Postgres?"),
    ("tense", "Who wins if it is a draw?", "Who won if it is a draw?"),
    ("direction", "What is inside the box?", "What is under the box?"),
    ("direction", "Do I go up at the corner?", "Do I go left at the corner?"),
    ("direction", "Should I pay the bill?", "Should they pay the bill?"),
    ("word", "What does 5 & 3 equal?", "What does 5 | 3 equal?"),
]
ALLOWED = [
    ("How do I mix milk with tea?", "How do I mix tea with milk?"),
    ("Which goes first, the milk or the tea?", "Which goes first, the tea or the milk?"),
    ("What did Ada teach?", "What did Ada teach then?"),
    ("As a beginner, how do I prune a quince?", "How do I prune a quince?"),
    ("How do I cook rice for 4 people?", "How do I cook rice for four people?"),
    ("Is 10 mg of zinc safe?", "Is ten milligrams of zinc safe?"),
    ("How can I prune a quince tree?", "How do I prune a quince tree?"),
    ("What is the difference between a frog and a toad?", "What is the difference between a toad and a frog?"),
    ("How far is Braga from Porto?", "How far is Porto from Braga?"),
    ("What are the best books on gardening?", "What is the best gardening book?"),
    ("What is the quickest way to peel garlic?", "What's the fastest way to peel garlic?"),
    ("How do I receive parcels abroad?", "How do I recieve parcels abroad?"),
    ("Does moss harm roofs?", "Does moss harm roofs"),
    ("How far from Porto is Braga?", "How far is Braga from Porto?"),
    ("I have a garden. How do I oil a lock?", "How do I oil a lock? I have a garden."),
    ("How do I oil a lock? Any tips?", "How do I oil a lock?"),
    ("What is the best way of pruning a quince?", "How do I prune a quince?"),
    ("tea or coffee for breakfast?", "coffee or tea for breakfast?"),
    ("How can I prune a quince?", "How would one prune a quince?"),
    ("Must I prune a quince?", "Do I have to prune a quince?"),
    ("Will the ferry leave at noon?", "Is the ferry going to leave at noon?"),
    ("Are there any herons in Porto?", "Are there some herons in Porto?"),
    ("What does `//` do in Python?", "what does // do in python"),
    ("What is the difference between // and / in Python?", "What is the difference between / and // in Python?"),
    ("Was Ada taught by Grace?", "Did Grace teach Ada?"),
    ("What colour is a heron?", "What color is a heron?"),
    ("How do I organise a choir?", "How do I organize a choir?"),
    ("Who wrote the hymn of Braga?", "Do you know who wrote the hymn of Braga?"),
    ("Give me a recipe for fig jam.", "I need a recipe for fig jam."),
    ("What is the population of the US?", "What is the population of the United States?"),
    ("What is the population of the U.S.?", "What is the population of the US?"),
    ("Name 3 causes of World War 1.", "Name three causes of World War One."),
    ("What is the 2nd verse of the hymn?", "What is the second verse of the hymn?"),
    ("Is a $20 tip too much?", "Is a 20 dollar tip too much?"),
    ("How long is a walk of 10 thousand steps?", "How long is a walk of 10,000 steps?"),
    ("How much is twenty-four eggs?", "How much is 24 eggs?"),
    ("How much water does a heron drink per day?", "How much water does a heron drink daily?"),
    ("What are the benefits of yoga?", "What are the advantages of yoga?"),
    (
        "Is the ferry to the island of Braga going to leave at noon?",
        "Will the ferry to the island of Braga leave at noon?",
    ),
    ("Am I allowed to moor a barge?", "Am I permitted to moor a barge?"),
    ("What does f(a, b) return?", "What does f(a,b) return?"),
    ("Which lamp is the best below 50 dollars?", "Which lamp is the best under 50 dollars?"),
    ("Should I pay the bill?", "Should you pay the bill?"),
    ("Who wins if it is a draw?", "Who wins when it is a draw?"),
    ("how do i use a map in javascript", "How do I use a Map in JavaScript?"),
    ("What is in ~/.profile?", "What is in ~/.profile??"),
    ("Where can I buy or sell stamps?", "Where can I sell stamps?"),
]


@pytest.mark.parametrize(("veto", "requested", "stored"), FORBIDDEN)
def test_a_changed_meaning_is_forbidden_either_way_round(veto: str, requested: str, stored: str) -> None:
    assert differences(requested, stored).veto == veto
    assert differences(stored, requested).veto == veto


@pytest.mark.parametrize(("requested", "stored"), ALLOWED)
def test_another_wording_of_the_same_is_not_forbidden(requested: str, stored: str) -> None:
    assert differences(requested, stored).veto is None
    assert differences(stored, requested).veto is None


def test_disguised_letters_hide_no_difference() -> None:
    assert differences("How do I en\u0430ble the firewall?", "How do I dis\u200bable the firewall?").veto == "opposite"


def test_a_text_too_long_to_compare_is_forbidden() -> None:
    assert differences("moss " * 500, "moss " * 500 + "not").veto == "too_long"


def test_opposites_go_both_ways() -> None:
    assert all((other, one) in OPPOSITES and one != other for one, other in OPPOSITES)
    assert len(OPPOSITES) > 800


@pytest.mark.parametrize(
    ("requested", "stored", "expected"),
    [
        ("a to b", "b to a", True),
        ("a b to c d", "c d to a b", True),
        ("a and b", "b and a", False),
        ("a b", "b a", False),
        ("a to b", "a to b", False),
        ("x beats y", "y beats x", True),
        ("", "", False),
    ],
)
def test_things_that_change_places_are_seen(requested: str, stored: str, expected: bool) -> None:
    assert is_turned(requested.split(), stored.split()) is expected
