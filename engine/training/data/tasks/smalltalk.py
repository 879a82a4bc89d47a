"""Small-talk task: greetings, thanks and questions about the assistant."""

import random

from engine.training.data.example import Difficulty, Example, Frames, Split, user
from engine.training.data.forms import in_a_case, unmarked

TOPICS: tuple[tuple[str, Frames], ...] = (
    ("Hello! How can I help you?", Frames(
        ("Hello", "Hi", "Hello!", "Hi there!", "Good morning!", "Hey", "hello there", "Good day!",
         "Hi, is anybody there?", "hi", "Good evening!", "Good afternoon", "Hello there!", "Hello, good day!",
         "Hey, good evening!",
         "Hi, how are you?", "Good morning, is somebody there?", "Morning!", "Hello you", "Greetings!", "Hello again!",
         "Hi everyone", "hey hello", "Well, hello!", "Good day to you!"),
        ("Hey there!", "Hello, is anybody there?", "Hi, good morning!"))),
    ("You are welcome!", Frames(
        ("Thanks!", "Thank you!", "Thank you very much.", "Thanks a lot!", "Great, thanks.", "thanks",
         "Perfect, thank you.",
         "Thanks for your help.", "Many, many thanks!", "Thanks, that helped.", "Thank you kindly.",
         "Thank you a lot!",
         "Okay, thanks!", "Thanks so much.", "My thanks!", "That helped, thank you!", "Very kind, thank you.",
         "Cool, thanks!",
         "thank you", "Wonderful, thanks!", "I thank you.", "Good, thank you.", "Thanks again!"),
        ("Thank you so much!", "Many thanks!", "Great, thank you!"))),
    ("Goodbye!", Frames(
        ("Bye", "Goodbye", "Bye bye!", "See you!", "bye", "Have a nice day!", "That was all, goodbye.",
         "Goodbye then.", "Bye for now!", "See you soon!", "See you later.", "Okay, bye.", "That is it, goodbye!",
         "Until next time!", "I have to go, bye.", "Goodbye and have a nice day!", "So long!", "Have a good day, bye.",
         "Bye, until tomorrow.", "This is all for today, bye!", "I am done, bye bye.", "Good night!",
         "We are done. Bye."),
        ("Bye then!", "Bye, see you!", "That is all, bye."))),
    ("I am the assistant of Harbour & Pine.", Frames(
        ("Who are you?", "What are you?", "What is your name?", "Are you a robot?", "Am I talking to a human?",
         "Who am I talking to?", "Introduce yourself.", "Say who you are.", "Please tell me your name.",
         "Who is there?", "Who is speaking?",
         "Are you a machine?", "Are you a real human?", "Are you a person?", "What do they call you?",
         "And who are you?",
         "Who is answering me?", "Do you have a name?", "Is this a human or a machine?", "Is this a robot?",
         "Could you tell me who you are?", "What is this?"),
        ("Tell me who you are.", "Who is this?", "Are you a human?"))),
    ("I answer questions about our shop, do small sums and read texts.", Frames(
        ("What can you do?", "How can you help me?", "What are you good at?", "Help", "What can I ask you?",
         "What do you know about?", "I need help.", "Help me, please.", "Can you help me?", "Please help me.",
         "I need your help.", "What are you able to do?", "Tell me what you know.", "What do you do?",
         "How do you help people?", "Which questions can I ask?", "Could you help me with something?",
         "Some help, please.",
         "I could use some help.", "Say what you can do.", "With what can you help?", "Tell me how you can help me."),
        ("What can you help me with?", "Tell me what you can do.", "I need some help."))),
)  # fmt: skip


def make(rng: random.Random, split: Split, difficulty: Difficulty) -> Example:
    """Return a line of small talk with its fixed reply."""
    answer, frames = rng.choice(TOPICS)
    text = in_a_case(rng, frames.pick(rng, split))
    text = unmarked(text) if rng.random() < 0.15 else text
    return Example(messages=(user(text),), answer=answer, task="smalltalk", difficulty=difficulty)
