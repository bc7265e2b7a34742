"""The notation: what parses, what is derived, what is refused."""

from __future__ import annotations

import pytest

from recollect.models.equation import Equation


def test_equations_are_derived_for_every_open_slot():
    tucker = Equation.parse("s:i p:j o:k t:l | lijk")
    assert tucker.einsum() == "Bi,Bj,Bk,Bl,lijk->B"
    assert tucker.einsum(open="s") == "Bj,Bk,Bl,lijk->Bi"
    assert tucker.einsum(open="t") == "Bi,Bj,Bk,lijk->Bl"
    assert tucker.slots == "spot"


def test_slots_axes_and_cores_are_read():
    tucker = Equation.parse("s:i p:j o:k t:l | lijk")
    assert (tucker.slots, tucker.axes("t"), tucker.cores, tucker.is_diagonal) == ("spot", "l", ("lijk",), False)
    tree = Equation.parse("t:a s:b p:cd o:e t:f | abc def")
    assert (tree.slots, tree.axes("t"), tree.order("t"), tree.order("p")) == ("spot", "af", 1, 2)
    assert Equation.parse("s:r p:r o:r | r").is_diagonal


@pytest.mark.parametrize("text", ["", "s:i", "x:i o:i", "s:I o:I", "s:i o:i | j", "s o", "s:i p:j o:i", "s:i o:i | I"])
def test_bad_notation_is_refused(text):
    with pytest.raises(ValueError, match=r"cannot read|occurs once"):
        Equation.parse(text)
