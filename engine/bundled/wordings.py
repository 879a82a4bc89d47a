"""How customers ask about the shop: wordings to train on and wordings held out for the test."""

import random
from collections.abc import Mapping

from engine.bundled.example import Frames, Split

OPENINGS = Frames(
    ("", "", "", "", "Hi, ", "Hello, ", "Hi there! ", "Quick question: ", "Good morning. ", "Sorry to bother you, but ",
     "I was wondering: ", "Hey, ", "One question: ", "Dear team, ", "Could you help me? ", "Excuse me, "),
    ("", "", "", "Hi, ", "Hello, ", "Good evening. ", "A short question: "),
)  # fmt: skip
CLOSINGS = Frames(
    ("", "", "", "", "", " Thanks.", " Thank you!", " Please help.", " Thanks in advance.", " Please."),
    ("", "", "", "", " Thanks.", " Thank you very much."),
)
ASK: Mapping[str, Frames] = {
    "shipping": Frames(
        ("How much is shipping to {x}?", "What does shipping to {x} cost?", "What is the shipping price for {x}?",
         "How much do you charge for shipping to {x}?", "What are the shipping costs to {x}?",
         "How much does it cost to send an order to {x}?", "I live in {x}. How much is shipping?",
         "What do I pay for delivery to {x}?", "What is the delivery fee for {x}?", "Tell me the shipping cost for {x}.",
         "My order goes to {x}. What does shipping cost?", "How expensive is standard shipping to {x}?",
         "I want to order to {x}. What is the postage?", "How many euros is shipping to {x}?",
         "Please tell me the price of shipping to {x}.", "shipping price {x}"),
        ("What would I pay for shipping to {x}?", "How much does shipping to {x} cost?", "What is the cost of shipping to {x}?",
         "I am in {x}. What are the shipping costs?")),
    "days": Frames(
        ("How long does delivery to {x} take?", "How many days does shipping to {x} take?", "When will my parcel arrive in {x}?",
         "What is the delivery time to {x}?", "How fast do you deliver to {x}?", "How long must I wait for a parcel in {x}?",
         "I live in {x}. How long does delivery take?", "How soon does an order reach {x}?", "Tell me the delivery time for {x}.",
         "How many days until my order gets to {x}?", "In how many days do you deliver to {x}?", "delivery time {x}",
         "My order goes to {x}. How many days does it take?", "What is the usual shipping time to {x}?"),
        ("How many days does delivery to {x} take?", "How long does a parcel to {x} take?", "What is the shipping time for {x}?",
         "I am in {x}. How many days is delivery?")),
    "express": Frames(
        ("How much is express shipping to {x}?", "What does express delivery to {x} cost?", "What is the express price for {x}?",
         "How much do you charge for express to {x}?", "I live in {x} and need it fast. What does express cost?",
         "Tell me the express shipping cost for {x}.", "What do I pay for express to {x}?", "express shipping price {x}",
         "How many euros is express delivery to {x}?", "My order goes to {x}. How much is express?",
         "What is the fee for express shipping to {x}?", "How expensive is express shipping to {x}?"),
        ("What would I pay for express shipping to {x}?", "How much does express shipping to {x} cost?",
         "What is the cost of express delivery to {x}?")),
    "opens": Frames(
        ("When does the {x} branch open?", "What time do you open in {x}?", "At what time does the {x} shop open?",
         "From what time is the {x} branch open?", "When do you open in {x}?", "How early can I come to the {x} branch?",
         "Tell me when the {x} branch opens.", "What is the opening time in {x}?", "opening time {x}",
         "I want to visit {x} in the morning. When do you open?", "When does your shop in {x} open in the morning?",
         "What is the earliest I can visit the {x} branch?", "When do the doors open in {x}?"),
        ("What time does the {x} branch open?", "When does the shop in {x} open?", "What is the opening time of the {x} branch?")),
    "closes": Frames(
        ("When does the {x} branch close?", "What time do you close in {x}?", "At what time does the {x} shop close?",
         "Until when is the {x} branch open?", "When do you close in {x}?", "How late can I come to the {x} branch?",
         "Tell me when the {x} branch closes.", "What is the closing time in {x}?", "closing time {x}",
         "I want to visit {x} in the evening. When do you close?", "When does your shop in {x} close on weekdays?",
         "What is the latest I can visit the {x} branch?", "How long is the {x} branch open on weekdays?"),
        ("What time does the {x} branch close?", "When does the shop in {x} close?", "What is the closing time of the {x} branch?")),
    "saturday": Frames(
        ("When does the {x} branch close on Saturdays?", "What time do you close in {x} on Saturday?",
         "Until when is the {x} branch open on Saturdays?", "How late can I come to {x} on a Saturday?",
         "Tell me when {x} closes on Saturday.", "What is the Saturday closing time in {x}?", "Saturday closing time {x}",
         "I want to visit {x} on Saturday. When do you close?", "On Saturdays, when does the {x} shop close?",
         "It is Saturday. How long is the {x} branch open?", "At what time does {x} close on Saturdays?"),
        ("What time does the {x} branch close on Saturdays?", "When does the shop in {x} close on Saturday?",
         "On Saturdays, what time do you close in {x}?")),
    "address": Frames(
        ("Where is the {x} branch?", "What is the address of the {x} branch?", "Where do I find the shop in {x}?",
         "How do I find you in {x}?", "Which street is the {x} branch on?", "What is your address in {x}?",
         "Tell me the address in {x}.", "Where can I visit you in {x}?", "I am in {x}. Where is your shop?", "address {x}",
         "Please give me the address of the {x} shop.", "Where exactly is the {x} branch?", "In which street are you in {x}?"),
        ("What is the address of the shop in {x}?", "Where do I find the {x} branch?", "Give me the address of the {x} branch.")),
    "extension": Frames(
        ("What is the phone extension of the {x} branch?", "Which extension do I dial for {x}?", "What extension does {x} have?",
         "Tell me the extension of the {x} shop.", "How do I call the {x} branch directly?", "phone extension {x}",
         "I want to call {x}. Which extension is it?", "What is the extension for {x}?", "Which extension reaches the {x} branch?",
         "Please give me the extension in {x}.", "What number do I dial for the {x} branch?"),
        ("What is the extension of the {x} branch?", "Which extension does the {x} branch have?", "Tell me the extension for {x}.")),
    "price": Frames(
        ("How much is the {x}?", "What does the {x} cost?", "What is the price of the {x}?", "How much do you want for the {x}?",
         "How expensive is the {x}?", "Tell me the price of the {x}.", "I want to buy the {x}. What does it cost?",
         "What do I pay for the {x}?", "How many euros is the {x}?", "price {x}", "What is the {x} selling for?",
         "I like the {x}. How much is it?", "At what price do you sell the {x}?", "Please tell me what the {x} costs."),
        ("How much does the {x} cost?", "What would I pay for the {x}?", "I want the {x}. What is the price?",
         "What is the cost of the {x}?")),
    "material": Frames(
        ("What is the {x} made of?", "Which material is the {x} made from?", "What material is used for the {x}?",
         "What is the material of the {x}?", "Tell me what the {x} is made of.", "material {x}",
         "I like the {x}. What is it made of?", "From which material do you make the {x}?", "What kind of material is the {x}?",
         "Is the {x} made of wood, metal or something else?", "What material does the {x} have?"),
        ("Which material is the {x} made of?", "What is the {x} made from?", "What material is the {x}?")),
    "warranty": Frames(
        ("How long is the warranty on the {x}?", "What warranty does the {x} have?", "How many years of warranty has the {x}?",
         "What is the warranty of the {x}?", "Tell me the warranty of the {x}.", "For how long is the {x} under warranty?",
         "warranty {x}", "I bought the {x}. How long is the warranty?", "How many years is the {x} covered?",
         "How long do you guarantee the {x}?", "What guarantee comes with the {x}?", "When does the warranty of the {x} end?"),
        ("How long is the warranty of the {x}?", "How many years of warranty does the {x} have?",
         "What is the warranty on the {x}?")),
    "origin": Frames(
        ("Where does the {x} come from?", "Where is the {x} produced?", "Which country does the {x} come from?",
         "What is the origin of the {x}?", "Tell me where the {x} comes from.", "origin {x}", "In which country is the {x} made?",
         "I like the {x}. Where does it come from?", "Where do you get the {x} from?", "From which country is the {x}?"),
        ("What country does the {x} come from?", "Where is the {x} from?", "In which country is the {x} produced?")),
    "unopened": Frames(
        ("How long can I return unopened {x}?", "How many days do I have to return unopened {x}?",
         "What is the return window for unopened {x}?", "Until when can I send back unopened {x}?", "returns unopened {x}",
         "I did not open my {x}. How long can I return them?", "Tell me the return period for unopened {x}.",
         "What is the return policy for {x} that I have not opened?", "By when must I return unopened {x}?",
         "I have unopened {x}. Within how many days can they go back?"),
        ("What is the return period for unopened {x}?", "How many days can I return unopened {x}?",
         "I have unopened {x}. How long can I return them?")),
    "opened": Frames(
        ("How long can I return opened {x}?", "How many days do I have to return opened {x}?",
         "What is the return window for opened {x}?", "Until when can I send back opened {x}?", "returns opened {x}",
         "I already opened my {x}. How long can I return them?", "Tell me the return period for opened {x}.",
         "What is the return policy for {x} that I have opened?", "By when must I return opened {x}?",
         "I have opened {x}. Within how many days can they go back?"),
        ("What is the return period for opened {x}?", "How many days can I return opened {x}?",
         "I have opened {x}. How long can I return them?")),
    "policy": Frames(
        ("Tell me {x}.", "Please tell me {x}.", "I would like to know {x}.", "Can you tell me {x}?", "Do you know {x}?",
         "I want to know {x}.", "Could you explain {x}?", "I have a question about {x}.", "I need to know {x}.",
         "Can you explain {x} to me?", "Please explain {x}.", "I am looking for {x}.", "{x}"),
        ("Could you tell me {x}?", "I am asking about {x}.", "Please let me know {x}.")),
}  # fmt: skip
# the same question about another entity
AND_ENTITY: Mapping[str, Frames] = {
    "country": Frames(("And to {x}?", "What about {x}?", "And for {x}?", "How about {x}?", "Now {x}, please."),
                      ("And {x}?", "And what about {x}?")),
    "branch": Frames(("And in {x}?", "What about {x}?", "And the {x} branch?", "How about {x}?", "Now {x}, please."),
                     ("And {x}?", "And what about {x}?")),
    "product": Frames(("And the {x}?", "What about the {x}?", "And for the {x}?", "How about the {x}?", "Now the {x}, please."),
                      ("And what about the {x}?", "Now for the {x}?")),
    "category": Frames(("And {x}?", "What about {x}?", "And for {x}?", "How about {x}?", "Now {x}, please."),
                       ("And what about {x}?", "Now for {x}?")),
}  # fmt: skip
# another question about the same entity
AND_RELATION: Mapping[str, Frames] = {
    "shipping": Frames(("And what does it cost?", "What is the price of that?", "And the shipping price?", "How much is shipping there?"),
                       ("And how much is it?", "And the shipping cost?")),
    "days": Frames(("And how long does it take?", "How many days is that?", "And the delivery time?", "How fast is it?"),
                   ("And how many days does it take?", "How long does that take?")),
    "express": Frames(("And with express?", "How much is express there?", "And the express price?", "What would express cost?"),
                      ("And express?", "What does express cost?")),
    "opens": Frames(("And when does it open?", "What is the opening time there?", "When does that branch open?"),
                    ("And what time does it open?", "And the opening time?")),
    "closes": Frames(("And when does it close?", "What is the closing time there?", "When does that branch close?"),
                     ("And what time does it close?", "And the closing time?")),
    "saturday": Frames(("And when does it close on Saturdays?", "What about the Saturday closing time?", "How late on Saturday?"),
                       ("And on Saturdays, when does it close?", "And the Saturday closing time?")),
    "address": Frames(("And where is it?", "What is the address there?", "Which street is that branch on?"),
                      ("And what is the address?", "Where is that branch?")),
    "extension": Frames(("And what is the extension?", "Which extension does it have?", "How do I call it directly?"),
                        ("And the extension?", "What is its extension?")),
    "price": Frames(("And what does it cost?", "What is its price?", "And how expensive is it?", "How much is that one?"),
                    ("And how much is it?", "And the price?")),
    "material": Frames(("And what is it made of?", "Which material is it?", "And from which material?", "What is that one made of?"),
                       ("And the material?", "What material is it?")),
    "warranty": Frames(("And how long is its warranty?", "What warranty does it have?", "How many years of warranty?"),
                       ("And the warranty?", "How long is the warranty?")),
    "origin": Frames(("And where does it come from?", "What is its origin?", "Which country is it from?"),
                     ("And the origin?", "Where is it from?")),
    "unopened": Frames(("And if they are unopened?", "What about unopened ones?", "And unopened?"),
                       ("And unopened ones?", "What if they are unopened?")),
    "opened": Frames(("And if they are opened?", "What about opened ones?", "And opened?"),
                     ("And opened ones?", "What if they are opened?")),
}  # fmt: skip


def dress(rng: random.Random, split: Split, question: str) -> str:
    """The question with an opening and a closing; now and then all in lower case."""
    text = OPENINGS.pick(rng, split) + question + CLOSINGS.pick(rng, split)
    return text.lower() if rng.random() < 0.08 else text
