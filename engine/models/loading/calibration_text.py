"""Text whose states show which inputs of a projection matter: ordinary language in a few registers."""

CALIBRATION_TEXT = """\
The harbour town had two bakeries and one clock, and nobody trusted the clock. Every morning before six, when
the fishing boats came back, Marta unlocked the larger bakery, lit the ovens, and listened to the wind under
the door. "You are late again," her brother said, although he had arrived only a minute earlier himself. She
laughed, tied her apron, and asked whether the flour had been delivered. It had not. They would have to borrow
three sacks from the shop across the square, as they had done in March.

A river erodes its bed where the current is fast and deposits sand where it slows down. On the outside of a
bend the water travels farther and therefore faster, so the bank is undercut; on the inside, gravel builds up
into a flat bar. Over several hundred years the bend grows until the river breaks through its narrow neck and
leaves a curved lake behind. Geologists estimate the age of such lakes from the pollen, charcoal and shells in
their lowest layers of mud.

The city council voted 11 to 4 on Tuesday to extend the tram line to the university hospital. Construction is
expected to begin in 2027 and to cost about 84 million euros, of which the national government will pay 60
percent. Opponents argued that buses would serve the same passengers at a fifth of the price. "We have waited
thirty years for this," said the mayor, "and traffic has doubled since then." The first trains could run by
the end of 2030.

Question: How do I keep basil alive in winter? Answer: Give it light, warmth and little water. Put the pot on
a south window, at least 18 degrees, and water it only when the top of the soil feels dry. Pick the upper
leaves first, because the plant then grows new branches. Steps: 1. Remove yellow leaves. 2. Turn the pot once
a week. 3. Feed it every month.

def total_price(items, tax=0.2):
    \"\"\"Return the price of all items with tax.\"\"\"
    total = 0.0
    for item in items:
        if item.quantity > 0:
            total += item.price * item.quantity
    return round(total * (1 + tax), 2)

Dear Ms. Okafor, thank you for your letter of 14 May. We are sorry to hear that the second parcel did not
arrive. Our records show that it left the warehouse on the 9th and was last scanned in Lyon. I have asked the
carrier to look for it; if it has not been found by Friday, we will send a new one at no cost to you. Kind
regards, Peter Lind

In mathematics, a prime number is a whole number greater than one that no smaller number divides except one
itself. There are infinitely many: multiply any finite list of primes, add one, and the result has a prime
factor that is not on the list. For example, 2 x 3 x 5 + 1 = 31, which is prime, while 2 x 3 x 5 x 7 x 11 x 13
+ 1 = 30031 = 59 x 509.

Das Wetter bleibt am Wochenende wechselhaft; im Norden regnet es, im Süden scheint die Sonne. Le train pour
Marseille part à huit heures du matin, et il faut arriver un peu avant. La biblioteca abre los lunes, pero
cierra los domingos.

User: I have a job interview tomorrow and I am nervous. What should I do tonight? Assistant: Prepare a little
and rest a lot. Read the description of the job once more, write down two questions you would like to ask, and
choose your clothes. Then stop: a walk and eight hours of sleep will help you more than another hour of
practice. Good luck!
"""
