"""The complete set of small ranges."""

from engine.training.data.example import DIFFICULTIES
from engine.training.evaluation.exhaustive import exhaustive_set
from tests.engine.training.data.test_forms import made


def test_the_exhaustive_set_requests_everything_once_in_wordings_of_the_test() -> None:
    examples = exhaustive_set(1)
    sums = [example for example in examples if example.task == "digit + two digits"]
    assert len(sums) == 10 * 31
    assert [int(example.answer) for example in sums] == [a + b for a in range(10) for b in range(10, 41)]
    counted = [example.answer.split()[-1] for example in examples if example.task == "count to a number"]
    assert counted == [str(number) for number in range(1, 51)]
    trained = {example.prompt for level in DIFFICULTIES for example in made("arithmetic", level, count=5000)}
    assert not trained & {example.prompt for example in examples}


def test_the_exhaustive_set_of_another_seed_has_the_same_answers_in_other_wordings() -> None:
    first, second = exhaustive_set(1), exhaustive_set(2)
    assert [example.answer for example in first] == [example.answer for example in second]
    assert [example.prompt for example in first] != [example.prompt for example in second]
