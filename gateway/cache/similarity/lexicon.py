"""Lexicon: words of English that say little, by how little they say, and words that say the same."""

from __future__ import annotations

from typing import Final


def words_of(text: str) -> frozenset[str]:
    """A list of words, written as text."""
    return frozenset(text.split())


FUNCTION_WORDS: Final = words_of(
    """a an the this that these those i me my mine myself we us our ours you your yours yourself he him his she her
    hers it its they them their theirs one ones someone somebody anyone anybody everyone everybody something
    anything everything there here and or but nor so yet if than then as because while though although whereas
    whether of to in on at by for with from into onto about upon over under between among through during within
    along across against toward towards per via up down out off away back again around near be is am are was
    were been being isn aren wasn weren do does did doing done have has had having can could will would shall
    should may might must ought let s t re ve ll d m what which who whom whose when where why how just also too
    very really quite even still only actually please any some each every all both such same other another more
    most much many lot lots bit few several own whole else ever always kindly simply exactly basically possibly
    maybe perhaps"""
)
"""Carry grammar; a text that differs in these alone mostly asks the same."""

COMMON_WORDS: Final = words_of(
    """get got make use go come take give want need like know think look find see say tell ask try work feel become
    keep show help call seem mean put set start begin turn leave happen thing way people person man woman guy
    girl boy kid time day year life world place part kind type sort example idea question answer reason problem
    issue fact case point number best good better great nice top right main important useful different new old
    big small long short high low easy easily simple hard difficult possible effective recommended suggest
    advice tip method step approach process solution option choice difference pro con advantage benefit meaning
    definition explain describe list name word thought opinion explanation using first last next main common
    popular real true own famous everyone favorite favourite ever cool interesting amazing awesome perfect
    proper properly correct correctly well soon quickly fast currently now today available able per pretty truly
    bad wrong much learn study read write buy sell pay cost money job company website site online app page free
    book movie course exam student school college university country city state government law learning writing
    reading prepare preparation live living love friend family home house car phone computer internet account
    password language english program programming code software data system business market product service job
    interview career engineering"""
)
"""Stand in so many questions that sharing them says little; lacking them may still say much."""

NEGATIONS: Final = words_of(
    """not no never cannot cant dont doesnt didnt isnt arent wasnt werent wont wouldnt shouldnt couldnt hasnt havent
    hadnt aint mustnt neednt without none nobody nothing nowhere neither nor hardly barely scarcely lack lacks
    lacking fail fails failed except avoid avoiding unless refuse stop stopped instead rather refrain skip omit
    omitting exclude excluding ignore abstain forgo minus sans devoid neglect decline"""
)
QUESTION_WORDS: Final = {
    **dict.fromkeys(words_of("how"), "how"),
    **dict.fromkeys(words_of("what which whats"), "what"),
    **dict.fromkeys(words_of("who whom whose"), "who"),
    **dict.fromkeys(words_of("when"), "when"),
    **dict.fromkeys(words_of("where"), "where"),
    **dict.fromkeys(words_of("why"), "why"),
}
YES_OR_NO: Final = words_of(
    """is are was were am do does did can could will would should shall may might has have had isn't aren't don't
    doesn't didn't can't won't"""
)
"""At the beginning they ask for yes or no."""
AMOUNTS: Final = words_of("much many long often far old big tall fast high large soon")
"""Behind `how` they ask for a quantity."""
DATES: Final = words_of(
    """january february march april may june july august september october november december jan feb mar apr jun jul
    aug sep sept oct nov dec monday tuesday wednesday thursday friday saturday sunday yesterday today tomorrow
    tonight noon midnight christmas easter"""
)
ALSO_VERBS: Final = words_of("may march")
"""Months only when written with a capital."""

# One line, one meaning: words that may stand for one another in a question without changing what it asks.
_SAME: Final = """
best good great top nicest finest ideal recommended
better superior
way method approach technique means
get obtain acquire gain receive
buy purchase
begin start commence
learn study
improve enhance boost
quick fast rapid quickly rapidly
easy simple easily simply
fix repair solve resolve
error bug mistake
big large huge
small little tiny
smart intelligent clever
rich wealthy
happen occur
choose pick select
book novel
movie film
job employment
picture photo image photograph
car automobile
phone mobile cellphone smartphone
kid child children
mom mother
dad father
usa us america american
uk britain british
tv television
app application
program programming
website site
ad advert advertisement advertising
exam examination test
college university
company firm
country nation
explain describe
example instance
reason cause why
difference differ distinction different
tip advice suggestion
thing stuff
delete remove erase
folder directory
build create make
show display
whole entire
trip journey travel
holiday vacation
doctor physician
illness disease sickness
happy glad
sad unhappy
earn make
money cash
hack crack
cheap inexpensive affordable
expensive costly
price cost
important significant
famous popular
helpful useful
beautiful pretty
weird strange odd
hard difficult tough
prepare preparation
lose loss reduce
purpose goal aim
meaning mean definition define
internet web
laptop notebook
photo pic
maths math mathematics
quickest fastest
easiest simplest
biggest largest greatest
smallest tiniest
hardest toughest
cheapest inexpensive
type kind sort variety
way manner
fact thing
advantage benefit pro plus upside
disadvantage drawback con downside
people person individual folk
guy man bloke
girl woman lady
boy lad
feel felt feeling
find locate discover
tell inform
know understand
like love enjoy
want wish desire
need require
stop quit cease
end finish
speak talk
talk chat
look seem appear
keep retain
join enroll enter
use utilize utilise employ
grow increase
decrease lower reduce
handle manage cope deal
overcome beat conquer
avoid prevent
join combine
send mail email
call phone ring
contact reach
live reside dwell
travel go
visit see
watch view see
search find seek
hire recruit
fire dismiss
allow permit let
ask question
answer reply respond response
solve tackle
try attempt
change modify alter
convert transform
calculate compute
estimate guess
compare contrast
pick select
recover restore retrieve regain
reset restore
setup install configure
run execute
launch start
halt stop
crash fail
protect secure guard
safe secure
danger risk hazard
dangerous risky hazardous unsafe
fat weight
belly stomach tummy abdomen
pimple acne zit
cold flu
pain ache
sleep rest
eat consume
drink beverage
food meal
cook prepare
clean wash
house home
garden yard
shop store
road street
town city
holiday festival
salary pay wage income
revenue income
tax duty
boss manager supervisor
worker employee
client customer
teacher instructor
student pupil learner
lawyer attorney
engineer developer
programmer developer coder
beginner newbie novice starter
expert professional pro
interview interviewing
resume cv
skill ability
talent gift
brain mind
dream goal
idea concept notion
opinion view thought
belief faith
god deity
universe cosmos
earth world planet
alien extraterrestrial
war conflict
army military
president leader
election vote
law rule
crime offence offense
normal usual regular ordinary
real actual genuine
true correct right
false wrong incorrect
possible feasible
necessary needed required
enough sufficient
main major principal primary core key
basic fundamental
current present
recent latest new newest
modern contemporary
old ancient
permanent lasting
permanently forever
daily everyday
often frequently
rarely seldom
nowadays currently
approximately roughly
maximum max
minimum min
average mean
amount quantity number
size dimension
speed velocity
fee charge cost
funny humorous hilarious
scary frightening
boring dull
lonely alone
angry mad
afraid scared
lazy idle
attractive handsome
sexy hot
stupid dumb foolish
crazy insane
successful accomplished
wonderful great
terrible awful horrible
shy introverted
"""


def _groups(text: str) -> dict[str, frozenset[int]]:
    found: dict[str, frozenset[int]] = {}
    for number, line in enumerate(text.strip().splitlines()):
        for word in line.split():
            found[word] = found.get(word, frozenset()) | {number}
    return found


SAME_MEANING: Final = _groups(_SAME)
"""Word → the numbers of the groups that it belongs to."""
