"""Facts about the shop."""

from __future__ import annotations

from engine.training.data.facts import POLICIES, num_facts, relations


def test_every_answer_names_its_entity_and_its_value() -> None:
    for relation in relations():
        for entity, value in relation.values.items():
            sentence = relation.sentence(entity)
            assert entity in sentence
            assert value in sentence


def test_relations_of_one_kind_know_the_same_entities() -> None:
    kinds: dict[str, set[frozenset[str]]] = {}
    for relation in relations():
        kinds.setdefault(relation.kind, set()).add(frozenset(relation.values))
    assert {kind: len(entities) for kind, entities in kinds.items()} == dict.fromkeys(kinds, 1)


def test_no_two_relations_have_one_name_and_no_topic_two_policies() -> None:
    names = [relation.name for relation in relations()]
    assert len(set(names)) == len(names)
    topics = [topic for topics, _ in POLICIES for topic in topics]
    assert len(set(topics)) == len(topics)


def test_facts_are_counted_once_each() -> None:
    assert num_facts() == sum(len(relation.values) for relation in relations()) + len(POLICIES)
