"""Templates in which one word or sign changes the question: those that rules were tuned on, and those held out.

One template a line; behind the bar come the words for `{}`, any two of which make two questions. A line without `{}`
is a list of whole questions. `{thing}` and other names are slots.
"""

from __future__ import annotations

from typing import Final

MODALITY: Final = """
{} I {do} {thing} {when}? | Must ¦ May ¦ Should ¦ Can ¦ Will
Who {} {do} {thing} {when}? | must ¦ may ¦ should ¦ can ¦ will
When {} a tenant {do} {thing}? | must ¦ may ¦ should ¦ can ¦ will
{} a visitor {do} {thing} {when}? | Must ¦ May ¦ Should ¦ Can
Which parts of {thing} {} be oiled {when}? | must ¦ may ¦ should ¦ can ¦ will
{} {do} {thing} {when}? | Do I have to ¦ Am I allowed to ¦ Am I able to ¦ Am I supposed to ¦ Am I going to
Why {} people {do} {thing}? | must ¦ should ¦ can ¦ would ¦ might
{} a landlord {do} {thing} before the tenant moves in? | Must ¦ May ¦ Should ¦ Can ¦ Would
What {} happen to {thing} {when}? | will ¦ may ¦ should ¦ must
{} our choir rehearse in {town} after ten? | Must ¦ May ¦ Should ¦ Could ¦ Will
Which forms {} an importer of dried fruit submit? | must ¦ may ¦ should ¦ can
{} apprentices wear gloves near {thing}? | Must ¦ Should ¦ Can ¦ Might ¦ Will
Under which conditions {} a referee stop a chess match in {town}? | must ¦ may ¦ can ¦ should
Are cyclists {} to carry a bell in {town}? | required ¦ allowed ¦ able ¦ expected
How long {} a guest stay at the hostel in {town}? | may ¦ must ¦ should ¦ will
Does a courier {} sign for {thing}? | have to ¦ get to ¦ want to
{} the pilot of a balloon land on a farm? | Must ¦ May ¦ Should ¦ Can ¦ Will
In {town} every baker {} sweep the street at dawn, right? | must ¦ may ¦ should ¦ can ¦ will
Is it true that divers {} carry a knife near {town}? | must ¦ may ¦ should ¦ can ¦ will
The notary in {town} {} read the deed aloud, is that so? | must ¦ may ¦ should ¦ can ¦ will
"""
MODALITY_HELD_OUT: Final = """
{} a novice climber use the north face without a guide? | May ¦ Must ¦ Should ¦ Could ¦ Will
Which vaccines {} sled dogs receive before a race? | must ¦ should ¦ can ¦ may ¦ will
Tell me whether a beekeeper {} register each hive in {town}. | must ¦ should ¦ can ¦ may ¦ will
By what date {} {person} return the borrowed harp? | must ¦ should ¦ can ¦ may ¦ will
Is a juror {} to speak with reporters? | obliged ¦ permitted ¦ able ¦ expected
Do interns {} wear a badge in the archive? | have to ¦ need to ¦ get to ¦ like to
Why {} an oven be heated before the dough goes in? | must ¦ should ¦ can ¦ may ¦ might
{} the same kiln hold glass and clay at once? | Can ¦ Should ¦ Must ¦ Will ¦ May
"""
TENSE: Final = """
{} the ferry to {town} leave at noon? | Did ¦ Does ¦ Will
{} the council of {town} repaint the bridge? | Did ¦ Does ¦ Will
Why {} {person} {do} {thing}? | did ¦ does ¦ will
{} {person} painted the bridge in {town}? | Has ¦ Had ¦ Will have
When {} the harbour of {town} closed for repairs? | is ¦ was ¦ will be
Who {} in charge of {thing}? | is ¦ was ¦ will be
What {} a ticket to {town} cost? | does ¦ did ¦ will
Why {} the river in {town} so dirty? | is ¦ was
Where {} {person} live? | does ¦ did ¦ will
Who {} the lighthouse near {town}? | owns ¦ owned ¦ will own
How many foxes {} in {town}? | live ¦ lived ¦ will live
{} the beavers near {town} rebuild their dam? | Did ¦ Do ¦ Will
Where {} the lantern festival take place? | did ¦ does ¦ will
How {} the monks of {town} brew their beer? | do ¦ did ¦ will
{} the museum of {town} charge for entry? | Does ¦ Did ¦ Will
Who {} the fencing club of {town}? | leads ¦ led ¦ will lead
Which team {} the rowing cup? | wins ¦ won ¦ will win
{} glaciers the main source of the stream? | Are ¦ Were
{} {person} collected beetles from {town}? | Has ¦ Had
What {} the orchestra rehearse on the voyage? | does ¦ did ¦ will
How much {} the toll over the pass? | is ¦ was ¦ will be
"""
TENSE_HELD_OUT: Final = """
{} the clock tower of {town} strike at midnight? | Does ¦ Did ¦ Will
Who {} the keys of the crypt? | keeps ¦ kept ¦ will keep
Which birds {} in the marsh near {town}? | nest ¦ nested ¦ will nest
{} {person} the conductor of the brass band? | Is ¦ Was
Since when {} {person} painted murals? | has ¦ had
Why {} the trams of {town} green? | are ¦ were
How often {} the swimmers train? | do ¦ did ¦ will
{} the glassblowers move their workshop to {town}? | Have ¦ Did ¦ Will
Where {} the spring fair held? | is ¦ was ¦ will be
"""
QUANTITY: Final = """
Are {} mushrooms in the forest edible? | all ¦ most ¦ some ¦ few
Why do {} bakers {do} {thing}? | all ¦ most ¦ few ¦ some ¦ many
Can {} guest bring a dog {when}? | every ¦ any
Do {} tenants pay for {thing}? | all ¦ most ¦ some ¦ few ¦ many
Does {} apple on the tree get ripe {when}? | every ¦ any ¦ either
{} of the rooms have a heater {when}, is that so? | All ¦ Most ¦ Few ¦ Some ¦ Many ¦ Half
Does {person} {} {do} {thing}? | always ¦ often ¦ sometimes ¦ rarely ¦ usually
Is there {} water in the barrel {when}? | enough ¦ little ¦ much
Do {} of the twins {do} {thing}? | both ¦ most ¦ some
Did {} passengers of the night ferry get seasick? | all ¦ most ¦ few ¦ some ¦ many
Will {} villages near {town} get a well? | all ¦ most ¦ some ¦ few
Can a herd of goats eat {} thistles on the hill? | all ¦ most ¦ some ¦ few
Do kites {} fly higher near {town}? | always ¦ often ¦ sometimes ¦ usually
Is {} sailor on deck awake? | every ¦ any
{} violins in the shop are hand made, correct? | All ¦ Most ¦ Some ¦ Few ¦ Many
Has {} student handed in the essay on {town}? | every ¦ any ¦ either
Does the ferry to {town} {} stop at the island? | always ¦ often ¦ sometimes ¦ seldom ¦ usually
Were {} of the lambs born before March? | all ¦ most ¦ both ¦ few ¦ half
Why are {} hives empty after winter? | all ¦ most ¦ some ¦ many
"""
QUANTITY_HELD_OUT: Final = """
Do {} ferries to the islands carry bicycles? | all ¦ most ¦ some ¦ few ¦ no
Were {} windows of the chapel broken? | all ¦ most ¦ some ¦ both ¦ few
Can {} member of the guild vote? | every ¦ any ¦ no
Why do {} potters use a kick wheel? | all ¦ most ¦ many ¦ few ¦ some
Does the well near {town} {} freeze? | always ¦ usually ¦ sometimes ¦ rarely ¦ never
{} of the orchards suffered from frost, did they not? | All ¦ Most ¦ Some ¦ None ¦ Half
Is {} candidate fit for the post? | each ¦ neither ¦ either ¦ any
Have {} of the letters been opened? | all ¦ most ¦ some ¦ both
"""
NUMBER: Final = """
How do I cook rice for {} people {when}? | one ¦ two ¦ three ¦ ten
Can {} lift {thing}? | one person ¦ two people ¦ three people
Is {} hour enough to {do} {thing}? | one ¦ two ¦ half an
Who won the {} race in {town}? | first ¦ second ¦ third ¦ last
What is the {} step to {do} {thing}? | first ¦ second ¦ last ¦ next
Does {} spoon of yeast suffice for a loaf? | one ¦ two ¦ four ¦ half a
Which pupil of {town} came {} in the spelling contest? | first ¦ second ¦ last
How far can a mule walk on {} bucket of oats? | one ¦ two ¦ three
What happens in the {} act of the opera about {town}? | first ¦ second ¦ third ¦ final
Is {} anchor enough for a barge? | one ¦ two
"""
NUMBER_HELD_OUT: Final = """
Will {} barrel hold the whole harvest? | one ¦ two ¦ three
Who sang the {} verse of the anthem? | first ¦ second ¦ last
Can I row across the lake in {} hour? | one ¦ half an ¦ three
Which runner finished {} in {town}? | first ¦ third ¦ last
How many sheep fit in {} wagon? | one ¦ two ¦ four
"""
ORDER: Final = """
Can he block me in the chat? ¦ Can I block him in the chat?
Should I call {person} first? ¦ Should {person} call me first?
Did they see us at {thing}? ¦ Did we see them at {thing}?
Was {person} photographed by {other_person}? ¦ Did {person} photograph {other_person}?
Does {person} owe {other_person} money? ¦ Does {other_person} owe {person} money?
Can a landlord sue a tenant {when}? ¦ Can a tenant sue a landlord {when}?
Should I {do} {thing} {} sunrise? | before ¦ after
Is a parcel from {town} to {other_town} insured? ¦ Is a parcel from {other_town} to {town} insured?
How do I import contacts from a phone into a laptop? ¦ How do I import contacts from a laptop into a phone?
{} did {person} {do} {thing}? | When ¦ Where ¦ Why ¦ How
Should they invite her to the wedding in {town}? ¦ Should she invite them to the wedding in {town}?
Was {person} taught by {other_person}? ¦ Did {person} teach {other_person}?
Will we visit them in {town}? ¦ Will they visit us in {town}?
Does the owl hunt the weasel at dusk? ¦ Does the weasel hunt the owl at dusk?
Is {town} ruled by {other_town}? ¦ Does {town} rule {other_town}?
May a nurse overrule a surgeon? ¦ May a surgeon overrule a nurse?
Is the bakery of {town} shut {} noon? | before ¦ after
Do I add the acid to the water? ¦ Do I add the water to the acid?
{} do the storks leave {town}? | When ¦ Why ¦ How
"""
ORDER_HELD_OUT: Final = """
Did she lend him the canoe? ¦ Did he lend her the canoe?
Is {person} managed by {other_person}? ¦ Does {person} manage {other_person}?
Should we wait for them at the lodge? ¦ Should they wait for us at the lodge?
Can a pike eat a perch? ¦ Can a perch eat a pike?
Is it better to glaze and then fire, or not? ¦ Is it better to fire and then glaze, or not?
Was the mill of {town} built {} the bridge? | before ¦ after
{} do weavers in {town} soak the wool? | Why ¦ How ¦ When ¦ Where
How do I move a file from the stick to the laptop? ¦ How do I move a file from the laptop to the stick?
"""
CODE: Final = r"""
What does a {} b do in Python? | // ¦ / ¦ % ¦ ** ¦ * ¦ == ¦ != ¦ << ¦ >>
How do I copy a folder with cp {}? | -r ¦ -R ¦ -p ¦ -i ¦ -n ¦ -a
What does grep {} print? | -i ¦ -v ¦ -c ¦ -l ¦ -L ¦ -o
What does tar {} do with an archive? | -xzf ¦ -czf ¦ -tzf
What does x[{}] return in Python? | 1: ¦ :1 ¦ ::-1 ¦ -1 ¦ 1:-1
Which strings match {}? | \d+ ¦ \D+ ¦ \w+ ¦ \d* ¦ ^\d+ ¦ \d+$ ¦ \d{2}
What is stored in {}? | /etc/hosts ¦ /etc/hostname ¦ ~/etc/hosts ¦ ./etc/hosts
How do I rename {} everywhere? | userId ¦ userID ¦ user_id ¦ UserId ¦ user-id
Is {} a list or a tuple in Python? | (1, 2) ¦ [1, 2] ¦ {1, 2}
What does {} hold in Perl? | $x ¦ @x ¦ %x ¦ &x
What does printf show for {}? | %d ¦ %x ¦ %X ¦ %s ¦ %5d
How do I install {} of the parser? | 1.2.3 ¦ 1.3.2 ¦ ^1.2.3 ¦ ~1.2.3 ¦ >=1.2.3
What does chmod {} run.sh change? | +x ¦ -x ¦ 755 ¦ u+x
Does git reset {} keep my edits? | --soft ¦ --hard ¦ --mixed
What does `{}` return? | Map ¦ map ¦ list(x) ¦ list[x]
What is the value of {} after the loop? | i++ ¦ ++i ¦ i-- ¦ i+1
When do I write {} in a condition? | = ¦ == ¦ === ¦ != ¦ !
What is the result of 7 {} 2 in Ruby? | / ¦ % ¦ ** ¦ * ¦ - ¦ <=>
Why does the query use {} here? | <> ¦ = ¦ >= ¦ <= ¦ <
When should I write a {} b in JavaScript? | && ¦ || ¦ ?? ¦ & ¦ |
What does sort {} do with a file? | -n ¦ -r ¦ -R ¦ -u ¦ -k2
How does ssh {} behave behind a firewall? | -L ¦ -l ¦ -R ¦ -D
What does s[{}] give for a string? | 2: ¦ :2 ¦ ::2 ¦ -2:
Which lines does the pattern {} keep? | ^a ¦ a$ ¦ a.* ¦ a.*b ¦ [^a] ¦ [a]
Who may read {}? | /var/log/syslog ¦ /var/log/messages ¦ var/log/syslog ¦ ~/.ssh/id_rsa ¦ ~/.ssh/id_rsa.pub
What is the type of {} in C? | *p ¦ &p ¦ **p ¦ p[] ¦ p()
How do I call {} from a test? | parseUrl ¦ parseURL ¦ parse_url ¦ ParseUrl
What does {} expand to in bash? | $@ ¦ $* ¦ $# ¦ $? ¦ $$ ¦ $!
Which elements does the selector {} pick? | .item ¦ #item ¦ item ¦ [item]
Does the installer accept {}? | ==2.0 ¦ >=2.0 ¦ ~=2.0 ¦ !=2.0
What is {} in TypeScript? | T[] ¦ T? ¦ T! ¦ <T>
What does the vim command {} do? | d ¦ D ¦ dd ¦ g ¦ G
What does `{}` mean in Swift? | x?.y ¦ x.y ¦ x!.y
How does `{}` differ from a plain loop? | for x in xs ¦ for x of xs
Why is {} slow on a big table? | SELECT * ¦ SELECT id ¦ COUNT(*) ¦ COUNT(id)
What follows {} in a Makefile rule? | $@ ¦ $< ¦ $^ ¦ $?
Is the lookup of {} fast? | d["key"] ¦ d.key ¦ d("key")
"""
CODE_HELD_OUT: Final = r"""
What is 17 {} 5 in PHP? | % ¦ / ¦ ** ¦ - ¦ *
What does curl {} send? | -d ¦ -D ¦ -i ¦ -I ¦ -o ¦ -O
How does x {} y behave in C? | & ¦ && ¦ | ¦ || ¦ ^
What does rows[{}] select? | 0:3 ¦ 3:0 ¦ :3 ¦ -3: ¦ 3
Which names does the pattern {} match? | [a-z]+ ¦ [A-Z]+ ¦ [a-z]* ¦ (a-z)+ ¦ [^a-z]+
Where is {} used on a server? | /etc/passwd ¦ /etc/shadow ¦ etc/passwd ¦ ~/passwd
What happens to {} in a closure? | maxCount ¦ MaxCount ¦ max_count ¦ maxcount
Does npm read {} as a range? | ^4.1.0 ¦ ~4.1.0 ¦ 4.1.0 ¦ >4.1.0
What does docker run {} do? | -p ¦ -P ¦ -d ¦ -v ¦ --rm
Is {} true in JavaScript? | 0 == "" ¦ 0 === "" ¦ 0 != ""
What does a dot mean in {}? | a.b ¦ a..b ¦ a->b ¦ a::b
How do I print {} in awk? | $1 ¦ $NF ¦ NF ¦ NR
What does the format {} show? | %Y ¦ %y ¦ %m ¦ %M ¦ %d
Which type is {} in Rust? | &str ¦ str ¦ &mut str ¦ *str
"""
