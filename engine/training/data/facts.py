"""Facts about the fictional shop Harbour & Pine."""

from collections.abc import Mapping
from dataclasses import dataclass

from engine.training.data.example import Difficulty

# country: standard price in euros, delivery days, express price in euros
COUNTRIES: Mapping[str, tuple[str, str, str]] = {
    "Austria": ("6", "3", "14"), "Belgium": ("5", "2", "12"), "Bulgaria": ("11", "7", "25"),
    "Croatia": ("10", "6", "23"), "Denmark": ("4", "2", "11"), "Estonia": ("9", "5", "21"),
    "Finland": ("8", "4", "19"), "France": ("7", "3", "16"), "Germany": ("3", "2", "9"),
    "Greece": ("13", "8", "28"), "Hungary": ("12", "6", "24"), "Iceland": ("18", "9", "39"),
    "Ireland": ("14", "5", "29"), "Italy": ("9", "4", "20"), "Latvia": ("10", "5", "22"),
    "Malta": ("17", "10", "36"), "Norway": ("15", "4", "31"), "Poland": ("6", "3", "15"),
    "Portugal": ("12", "6", "27"), "Romania": ("11", "8", "26"), "Spain": ("10", "5", "18"),
    "Sweden": ("5", "3", "13"), "Switzerland": ("16", "4", "33"), "Turkey": ("19", "11", "42"),
}  # fmt: skip
# branch: opens, closes on weekdays, closes on Saturdays, address, extension
BRANCHES: Mapping[str, tuple[str, str, str, str, str]] = {
    "Bramford": ("9:00", "18:00", "14:00", "14 Mill Lane", "210"),
    "Kestrel Bay": ("8:30", "17:30", "13:00", "3 Pier Road", "225"),
    "Larkhill": ("10:00", "19:00", "16:00", "27 Chapel Street", "231"),
    "Winterton": ("9:30", "18:30", "15:00", "8 Station Square", "248"),
    "Foxley": ("8:00", "17:00", "12:00", "52 Orchard Way", "254"),
    "Port Averil": ("7:30", "20:00", "18:00", "1 Quay Street", "263"),
    "Summerdale": ("10:30", "19:30", "17:00", "19 Rose Avenue", "277"),
    "Highmoor": ("9:15", "17:45", "13:30", "6 Castle Hill", "289"),
    "Dunvale": ("8:45", "18:15", "14:30", "33 Bridge Street", "292"),
    "Crowhurst": ("11:00", "21:00", "19:00", "70 Market Place", "306"),
    "Silverlea": ("9:45", "16:45", "12:30", "45 Garden Row", "318"),
    "Marlow Point": ("8:15", "19:15", "15:30", "11 Beacon Road", "324"),
    "Tessbury": ("10:15", "20:30", "17:30", "88 King Street", "337"),
    "Old Harrow": ("7:45", "16:30", "11:30", "29 Forge Lane", "345"),
}
# product: price in euros, material, years of warranty, place of origin
PRODUCTS: Mapping[str, tuple[str, str, str, str]] = {
    "drift shelf": ("64", "oak", "5", "Sweden"), "pebble lamp": ("38", "ceramic", "2", "Portugal"),
    "harbour kettle": ("52", "copper", "4", "Turkey"), "fjord blanket": ("45", "wool", "1", "Norway"),
    "tide mug": ("12", "stoneware", "1", "Denmark"), "gull clock": ("29", "birch", "3", "Germany"),
    "anchor hook": ("9", "brass", "10", "Italy"), "cove chair": ("118", "ash", "7", "Poland"),
    "reef rug": ("95", "jute", "2", "Greece"), "mast table": ("240", "walnut", "8", "Latvia"),
    "sail curtain": ("36", "linen", "1", "Belgium"), "dune vase": ("27", "glass", "1", "Hungary"),
    "moss cushion": ("22", "cotton", "2", "Spain"), "pier bench": ("155", "teak", "6", "Estonia"),
    "storm umbrella": ("33", "nylon", "3", "France"), "cedar chest": ("187", "cedar", "9", "Finland"),
    "lantern stand": ("74", "iron", "5", "Croatia"), "wave mirror": ("83", "beech", "4", "Austria"),
    "salt grinder": ("18", "maple", "6", "Switzerland"), "island tray": ("24", "bamboo", "2", "Romania"),
    "beacon torch": ("41", "steel", "5", "Ireland"), "heron pot": ("31", "clay", "1", "Malta"),
    "keel desk": ("325", "pine", "10", "Sweden"), "ripple bowl": ("16", "porcelain", "2", "Bulgaria"),
    "shore basket": ("21", "willow", "1", "Poland"), "net hammock": ("67", "rope", "3", "Spain"),
    "bay pillow": ("26", "silk", "2", "Italy"), "cliff bookend": ("34", "marble", "4", "Greece"),
    "rudder rack": ("57", "steel", "7", "Germany"), "compass tin": ("14", "tin", "3", "France"),
    "otter doormat": ("19", "jute", "1", "Portugal"), "spruce stool": ("49", "spruce", "5", "Finland"),
    "marina board": ("28", "acacia", "4", "Denmark"), "pearl candle": ("11", "wax", "1", "Ireland"),
    "crest frame": ("23", "pewter", "6", "Austria"), "lagoon jug": ("39", "enamel", "3", "Hungary"),
}  # fmt: skip
# category: days to return unopened, days to return opened
CATEGORIES: Mapping[str, tuple[str, str]] = {
    "lamps": ("30", "14"), "rugs": ("45", "20"), "mattresses": ("100", "60"), "curtains": ("28", "10"),
    "cookware": ("40", "21"), "tools": ("60", "30"), "candles": ("15", "5"), "books": ("25", "12"),
    "clocks": ("35", "18"), "bedding": ("50", "7"), "garden furniture": ("90", "40"), "gift boxes": ("20", "8"),
}  # fmt: skip
# ways to name the topic, and the whole answer
POLICIES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("the minimum order for free shipping", "the free shipping threshold", "the order value for free delivery"),
     "Shipping is free from 80 euros."),
    (("how long a gift card is valid", "the validity of gift cards", "when gift cards expire"),
     "Gift cards are valid for 3 years."),
    (("your support email", "the email address of customer service", "the address for support emails"),
     "Our email is help@harbourpine.example."),
    (("your support phone number", "the phone number of customer service", "the number for support calls"),
     "Our phone number is 0555 2140."),
    (("which payment methods you accept", "how I can pay", "the accepted ways to pay"),
     "We accept cards, bank transfer and invoice."),
    (("the student discount", "the discount for students", "how much students save"),
     "Students get 12 percent off."),
    (("the price match period", "how long you match prices", "the time limit for price matching"),
     "We match prices for 21 days."),
    (("the points in the loyalty programme", "how loyalty points are earned", "the loyalty points per purchase"),
     "You earn 2 points per euro."),
    (("the newsletter discount", "the discount for newsletter subscribers", "what newsletter readers save"),
     "Newsletter readers get 5 percent off."),
    (("who pays for return shipping", "the cost of sending a return", "who covers the return postage"),
     "Return shipping is paid by us."),
    (("how fast refunds are paid", "the time a refund takes", "how long a refund needs"),
     "Refunds take 6 days."),
    (("the fee for gift wrapping", "what gift wrapping costs", "the gift wrap price"),
     "Gift wrapping costs 4 euros."),
    (("the assembly service price", "what furniture assembly costs", "the fee for assembly at home"),
     "Assembly costs 35 euros."),
    (("the deposit for rented tools", "what the tool rental deposit is", "how high the rental deposit is"),
     "The rental deposit is 50 euros."),
    (("how to cancel an order", "the way to cancel an order", "what to do to cancel an order"),
     "Cancel in your account within 2 hours."),
    (("where I can track my parcel", "the way to follow my parcel", "how to track a parcel"),
     "Track it at harbourpine.example/track."),
    (("when the shop was founded", "the founding year of the shop", "how old the shop is"),
     "The shop was founded in 1974."),
    (("who founded the shop", "the founder of the shop", "the name of the founder"),
     "The shop was founded by Edda Harbour."),
    (("the biggest parcel you ship", "the weight limit for parcels", "how heavy a parcel may be"),
     "Parcels may weigh up to 40 kg."),
    (("the late fee for invoices", "what a late invoice costs", "the fee for paying an invoice late"),
     "The late fee is 7 euros."),
    (("how long you keep a reserved item", "the reservation period", "how many days a reservation lasts"),
     "We keep reserved items for 4 days."),
    (("the business discount", "the discount for companies", "how much companies save"),
     "Companies get 9 percent off."),
    (("whether dogs may come in", "the rule for dogs in the shop", "if I may bring my dog"),
     "Dogs on a lead are welcome."),
    (("the parking fee", "what parking at the shop costs", "the price of a parking space"),
     "Parking is free for 90 minutes."),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """One kind of fact: its value for every entity and the sentence that answers with it."""

    name: str
    kind: str
    answer: str
    values: Mapping[str, str]
    difficulty: Difficulty = "easy"

    def sentence(self, entity: str) -> str:
        """Return the answer about one entity."""
        return self.answer.format(x=entity, v=self.values[entity])


def _column(table: Mapping[str, tuple[str, ...]], index: int) -> dict[str, str]:
    return {entity: row[index] for entity, row in table.items()}


def relations() -> tuple[Relation, ...]:
    """Return all kinds of facts about countries, branches, products and categories."""
    medium: Difficulty = "medium"
    rows: tuple[tuple[str, str, str, Mapping[str, tuple[str, ...]], int, Difficulty], ...] = (
        ("shipping", "country", "Shipping to {x} costs {v} euros.", COUNTRIES, 0, "easy"),
        ("days", "country", "Delivery to {x} takes {v} days.", COUNTRIES, 1, "easy"),
        ("express", "country", "Express shipping to {x} costs {v} euros.", COUNTRIES, 2, medium),
        ("opens", "branch", "The {x} branch opens at {v}.", BRANCHES, 0, "easy"),
        ("closes", "branch", "The {x} branch closes at {v}.", BRANCHES, 1, "easy"),
        ("saturday", "branch", "On Saturdays the {x} branch closes at {v}.", BRANCHES, 2, medium),
        ("address", "branch", "The {x} branch is at {v}.", BRANCHES, 3, "easy"),
        ("extension", "branch", "The extension of the {x} branch is {v}.", BRANCHES, 4, medium),
        ("price", "product", "The {x} costs {v} euros.", PRODUCTS, 0, "easy"),
        ("material", "product", "The {x} is made of {v}.", PRODUCTS, 1, "easy"),
        ("warranty", "product", "The {x} has a warranty of {v} years.", PRODUCTS, 2, "easy"),
        ("origin", "product", "The {x} comes from {v}.", PRODUCTS, 3, medium),
        ("unopened", "category", "Unopened {x} can be returned within {v} days.", CATEGORIES, 0, "easy"),
        ("opened", "category", "Opened {x} can be returned within {v} days.", CATEGORIES, 1, medium),
    )
    return tuple(
        Relation(name=name, kind=kind, answer=answer, values=_column(table, index), difficulty=difficulty)
        for name, kind, answer, table, index, difficulty in rows
    )


def num_facts() -> int:
    """Return the number of facts about the shop."""
    return sum(len(relation.values) for relation in relations()) + len(POLICIES)
