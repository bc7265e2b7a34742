"""Labels similar to an unknown one are found among very many, by few comparisons."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect import UserError, Vocabulary
from recollect.graph.vocabulary import COMPARED_LABELS, _most_alike, similar_labels

MANY = [f"Member of the Ministry of Foreign Affairs ({i:06d})" for i in range(30_000)] + ["Turkey", "Syria"]


@pytest.mark.parametrize("typo", ["Turky", "turkey", "Tukrey", "Turrkey", "TURKEI"])
def test_a_mistyped_label_is_found_among_many(typo):
    assert similar_labels(typo, MANY)[0] == "Turkey"


def test_the_label_with_one_wrong_word_is_found_among_near_copies():
    assert MANY[12_345] in similar_labels("Member of Ministry of Foreign Affairs (012345)", MANY)


def test_at_most_200_labels_are_compared_letter_by_letter():
    assert len(_most_alike("member of", MANY)) == COMPARED_LABELS
    assert len(_most_alike("member of", MANY[:7])) == 7


def test_labels_that_contain_the_unknown_one_are_the_second_choice():
    assert similar_labels("029999", MANY) == [MANY[29_999]]
    assert similar_labels("", MANY) == []


@given(st.text(st.characters()), st.lists(st.text(st.characters(), max_size=9), max_size=9), st.integers(1, 60))
def test_any_text_can_be_looked_for(label, labels, repeated):
    assert set(similar_labels(label, labels * repeated)) <= set(labels)


def test_long_labels_are_compared_by_their_beginnings():
    longest = ["ab" * 50_000 + str(i) for i in range(300)]
    assert similar_labels("ab" * 50_000, longest)


def test_the_error_of_a_vocabulary_suggests_similar_labels():
    with pytest.raises(UserError, match="unknown entity 'Turky'; did you mean 'Turkey'\\?"):
        Vocabulary.of("entity", MANY).index("Turky")
    with pytest.raises(UserError, match="unknown entity 'q'; there are 30,002, such as 'Member of the Ministry"):
        Vocabulary.of("entity", MANY).index("q")
