"""Opposites: pairs of words of which one turns what a text asks into its contrary, and the prefixes that do so."""

from __future__ import annotations

from typing import Final

_PAIRS: Final = """
enable disable; activate deactivate; start stop; start end; start finish; begin end; begin finish; open close;
open shut; turn_on turn_off; on off; in out; up down; over under; above below; before after; with without;
inside outside; within outside; into from; to from; for against; pro con; pros cons; import export; increase
decrease; increase reduce; increase lower; raise lower; raise reduce; grow shrink; expand shrink; expand
contract; extend shorten; gain lose; win lose; add remove; add delete; add subtract; insert remove; insert
delete; create delete; create destroy; build destroy; build demolish; install uninstall; mount unmount; lock
unlock; load unload; pack unpack; zip unzip; compress decompress; compress expand; encrypt decrypt; encode
decode; connect disconnect; attach detach; plug unplug; bind unbind; link unlink; subscribe unsubscribe;
follow unfollow; friend unfriend; block unblock; ban unban; mute unmute; hide show; hide unhide; freeze thaw;
freeze unfreeze; buy sell; lend borrow; borrow return; give take; give receive; send receive; upload download;
push pull; push pop; read write; accept reject; accept refuse; accept decline; approve reject; approve deny;
allow forbid; allow deny; allow block; allow prevent; permit forbid; permit prohibit; grant revoke; grant
deny; include exclude; include omit; join leave; join quit; enter exit; enter leave; arrive depart; arrive
leave; come go; login logout; log_in log_out; sign_in sign_out; check_in check_out; opt_in opt_out; appear
vanish; appear disappear; hire fire; employ dismiss; save spend; save waste; save discard; save delete; keep
discard; keep remove; keep lose; keep delete; pass fail; succeed fail; success failure; love hate; like
dislike; like hate; agree disagree; trust distrust; believe doubt; admit deny; confirm deny; confirm cancel;
confirm refute; prove disprove; attack defend; help hinder; help harm; help hurt; encourage discourage; praise
criticize; praise blame; support oppose; support attack; defend criticize; cause prevent; cause cure; cause
avoid; promote prevent; promote demote; promote hinder; seek avoid; avoid use; avoid attract; attract repel;
tighten loosen; strengthen weaken; improve worsen; heal hurt; heat cool; warm cool; warm chill; melt freeze;
boil freeze; fill empty; fill drain; inflate deflate; speed slow; accelerate brake; accelerate decelerate;
advance retreat; ascend descend; rise fall; rise drop; rise sink; climb descend; lift drop; float sink; inhale
exhale; wake sleep; remember forget; teach learn; ask answer; lead follow; hit miss; catch throw; catch miss;
multiply divide; maximize minimize; maximise minimise; upgrade downgrade; upvote downvote; scale_up
scale_down; zoom_in zoom_out; grant revoke; assign unassign; register unregister; register deregister; deploy
undeploy; commit rollback; commit revert; apply revert; merge split; combine separate; join split; unite
divide; mix separate; serialize deserialize; marshal unmarshal; allocate free; allocate deallocate; acquire
release; capture release; retain release; hold release; sleep wake; mine fill; best worst; better worse; good
bad; good evil; great terrible; good poor; high low; higher lower; highest lowest; big small; bigger smaller;
biggest smallest; large small; larger smaller; largest smallest; long short; longer shorter; longest shortest;
tall short; taller shorter; wide narrow; wider narrower; thick thin; thicker thinner; deep shallow; heavy
light; heavier lighter; hot cold; hotter colder; warm cold; hard soft; hard easy; harder easier; hardest
easiest; difficult easy; simple complex; simple complicated; strong weak; stronger weaker; strongest weakest;
fast slow; faster slower; fastest slowest; quick slow; early late; earlier later; earliest latest; old new;
old young; older newer; older younger; oldest newest; oldest youngest; ancient modern; past future; first
last; former latter; previous next; last next; rich poor; richer poorer; richest poorest; wealthy poor; cheap
expensive; cheaper pricier; cheapest priciest; cheaper dearer; free paid; full empty; wet dry; clean dirty;
bright dark; light dark; black white; sweet bitter; sweet sour; fresh stale; raw cooked; alive dead; live die;
birth death; male female; man woman; men women; boy girl; boys girls; husband wife; father mother; son
daughter; brother sister; he she; him her; his hers; king queen; uncle aunt; nephew niece; boyfriend
girlfriend; groom bride; actor actress; happy sad; happy unhappy; safe dangerous; safe risky; healthy sick;
healthy ill; true false; right wrong; right left; correct wrong; east west; north south; eastern western;
northern southern; top bottom; front back; upper lower; forward backward; forwards backwards; forward back;
clockwise counterclockwise; horizontal vertical; row column; rows columns; left right; ascending descending;
positive negative; plus minus; more less; more fewer; most least; most fewest; many few; much little; maximum
minimum; max min; all none; all some; every no; everyone nobody; everything nothing; always never; often
rarely; often seldom; sometimes never; ever never; usually rarely; everywhere nowhere; public private;
internal external; local remote; local global; online offline; manual automatic; automatically manually;
static dynamic; mutable immutable; sync async; synchronous asynchronous; serial parallel; client server; input
output; source target; source destination; producer consumer; buyer seller; employer employee; landlord
tenant; teacher student; parent child; host guest; doctor patient; lender borrower; sender receiver; sender
recipient; winner loser; winners losers; friend enemy; ally enemy; hero villain; amateur professional;
beginner expert; novice expert; day night; morning evening; dawn dusk; sunrise sunset; summer winter; spring
autumn; am pm; credit debit; asset liability; assets liabilities; income expense; profit loss; profits losses;
revenue expense; surplus deficit; demand supply; deposit withdraw; deposit withdrawal; deflation inflation;
bull bear; bullish bearish; long_term short_term; advantage disadvantage; advantages disadvantages; benefit
drawback; benefits drawbacks; benefits risks; benefit risk; strength weakness; strengths weaknesses; cause
effect; causes effects; cause symptom; causes symptoms; question answer; problem solution; theory practice;
war peace; love hatred; acid base; acute chronic; benign malignant; major minor; majority minority; singular
plural; active passive; guilty innocent; legal illegal; legally illegally; optimist pessimist; optimistic
pessimistic; introvert extrovert; introverts extroverts; introverted extroverted; liberal conservative;
capitalism communism; capitalism socialism; democrat republican; democrats republicans; freedom slavery; guest
host; inner outer; interior exterior; odd even; prefix suffix; predecessor successor; premium basic; permanent
temporary; permanently temporarily; presence absence; present absent; rural urban; sharp blunt; smooth rough;
solid liquid; straight curved; superior inferior; sure unsure; tight loose; vacant occupied; victory defeat;
visible hidden; voluntary mandatory; optional mandatory; optional required; allowed forbidden; allowed
prohibited; weekday weekend; weekdays weekends; wholesale retail; wild tame; yes no; entry exit; entrance
exit; departure arrival; inbound outbound; incoming outgoing; inward outward; upstream downstream; uphill
downhill; upstairs downstairs; upload delete; sunny rainy; dominant recessive; convex concave; gain loss;
weight_gain weight_loss; overweight underweight; overestimate underestimate; underrated overrated; undervalued
overvalued; hyper hypo; macro micro; vowel consonant; verb noun; domestic foreign; domestic international;
native foreign; import produce; abundant scarce; generous stingy; polite rude; brave cowardly; lazy diligent;
honest dishonest; loud quiet; noisy quiet; busy idle; guilty blameless; near far; nearest farthest; nearest
furthest; closest farthest; closer farther; common rare; commonly rarely; ordinary special; usual unusual;
general specific; broad narrow; abstract concrete; literal figurative; objective subjective; quantitative
qualitative; inductive deductive; induction deduction; synthesis analysis; absolute relative; exact
approximate; discrete continuous; finite infinite; rational irrational; renewable nonrenewable; vegetarian
carnivorous; herbivore carnivore; predator prey; wake_up fall_asleep; get_up lie_down; stand sit; stand lie;
sell rent; buy rent; rent own; lease buy; marry divorce; engage disengage; lengthen shorten; widen narrow;
deepen fill; brighten darken; lighten darken; soften harden; sharpen dull; simplify complicate; centralize
decentralize; abolish establish; destroy restore; damage repair; break fix; break mend; lost found; lose find;
hide seek; hide reveal; conceal reveal; bury dig; plant harvest; sow reap; dress undress; wear remove; tie
untie; wrap unwrap; fold unfold; roll unroll; cover uncover; button unbutton; do undo; screw unscrew; fasten
unfasten; buckle unbuckle; arm disarm; charge discharge; qualify disqualify; mark unmark; check uncheck;
select deselect; pin unpin; stake unstake; archive unarchive; cork uncork
"""

NEGATING_PREFIXES: Final = ("un", "in", "im", "il", "ir", "dis", "non", "anti", "de", "mis", "a")
"""`x` beside `un` + `x`: the second denies, undoes or spoils the first."""
MIN_STEM: Final = 4
"""Letters after such a prefix; shorter words begin so by chance."""


def _pairs(text: str) -> frozenset[tuple[str, str]]:
    found = set()
    for pair in text.replace("\n", " ").split(";"):
        one, other = pair.split()
        found |= {(one, other), (other, one)}
    return frozenset(found)


OPPOSITES: Final = _pairs(_PAIRS)
"""Both ways round; of two-word verbs the particle tells (`on`, `off`)."""


def are_opposites(one: str, other: str) -> bool:
    """Of two lower-case words, in whatever order."""
    return (one, other) in OPPOSITES or _denies(one, other) or _denies(other, one)


def _denies(word: str, denial: str) -> bool:
    """`tidy`, `untidy`; `careful`, `careless`."""
    if len(word) >= MIN_STEM and denial.endswith(word) and denial[: -len(word)] in NEGATING_PREFIXES[:-1]:
        return True
    return word.endswith("ful") and denial.endswith("less") and word[:-3] == denial[:-4]
