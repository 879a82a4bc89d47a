"""Greetings, thanks and questions about the assistant."""

import random

from engine.bundled.example import Difficulty, Example, Frames, Split, user

TOPICS: tuple[tuple[str, Frames], ...] = (
    ("Hello! How can I help you?", Frames(
        ("Hello", "Hi", "Hello!", "Hi there!", "Good morning!", "Hey", "hello there", "Good day!",
         "Hi, is anybody there?", "hi"),
        ("Hey there!", "Hello, is anybody there?", "Hi, good morning!"))),
    ("You are welcome!", Frames(
        ("Thanks!", "Thank you!", "Thank you very much.", "Thanks a lot!", "Great, thanks.", "thanks",
         "Perfect, thank you.",
         "Thanks for your help."),
        ("Thank you so much!", "Many thanks!", "Great, thank you!"))),
    ("Goodbye!", Frames(
        ("Bye", "Goodbye", "Bye bye!", "See you!", "bye", "Have a nice day!", "That was all, goodbye.",
         "Goodbye then."),
        ("Bye then!", "Bye, see you!", "That is all, bye."))),
    ("I am the assistant of Harbour & Pine.", Frames(
        ("Who are you?", "What are you?", "What is your name?", "Are you a robot?", "Am I talking to a human?",
         "Who am I talking to?", "Introduce yourself."),
        ("Tell me who you are.", "Who is this?", "Are you a human?"))),
    ("I answer questions about our shop, do small sums and read texts.", Frames(
        ("What can you do?", "How can you help me?", "What are you good at?", "Help", "What can I ask you?",
         "What do you know about?", "I need help."),
        ("What can you help me with?", "Tell me what you can do.", "I need some help."))),
)  # fmt: skip


def make(rng: random.Random, split: Split, difficulty: Difficulty) -> Example:
    """A line of small talk with its fixed reply."""
    answer, frames = rng.choice(TOPICS)
    return Example(messages=(user(frames.pick(rng, split)),), answer=answer, task="smalltalk", difficulty=difficulty)
