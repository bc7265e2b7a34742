"""The notation: what parses, what is derived, what is refused."""

from __future__ import annotations

import opt_einsum
import pytest
import torch

from conftest import FORMED
from recollect import Ranks
from recollect.indicator import Indicator, _expression, einsum
from recollect.models import MODELS


def test_equations_are_derived_for_every_open_slot():
    tucker = Indicator.parse("s:i p:j o:k t:l | lijk")
    assert tucker.equation() == "Bi,Bj,Bk,Bl,lijk->B"
    assert tucker.equation(open="s") == "Bj,Bk,Bl,lijk->Bi"
    assert tucker.equation(open="t") == "Bi,Bj,Bk,lijk->Bl"
    assert tucker.slots == "spot"


def test_a_slot_that_occurs_twice_is_multiplied_out():
    tree = Indicator.parse("t:a s:b p:cd o:e t:f | abc def")
    value = torch.arange(6.0).reshape(2, 3)
    outer = tree.candidates("t", value)
    assert outer.shape == (2, 3, 3)
    torch.testing.assert_close(outer[1], torch.outer(value[1], value[1]))
    assert tree.slots == "spot"


@pytest.mark.parametrize("text", ["", "s:i", "x:i o:i", "s:I o:I", "s:i o:i | j", "s o", "s:i p:j o:i", "s:i o:i | I"])
def test_bad_notation_is_refused(text):
    with pytest.raises(ValueError, match=r"cannot read|occurs once"):
        Indicator.parse(text)


@pytest.mark.parametrize(("name", "form"), FORMED)
def test_every_contraction_takes_its_cheapest_path(name, form):
    """Of all orders; a hasty search costs Tree's open time ten times the work and forty times the memory."""
    sizes = {"entity": 9, "predicate": 7, "time": 8}
    indicator = MODELS[name].equation(form)
    shapes = MODELS[name].shapes(sizes, Ranks.of(40), form)
    for slot in (None, *indicator.slots):
        axes = ["B" + a for s, a in indicator.factors if s != slot] + list(indicator.cores)
        length = {"B": 4300} | dict.fromkeys("".join(axes).replace("B", ""), 40)
        operands = [tuple(length[axis] for axis in word) for word in axes]
        equation = indicator.equation(open=slot)
        _, best = opt_einsum.contract_path(equation, *operands, shapes=True, optimize="optimal")
        taken = _expression(equation, *operands)
        _, ours = opt_einsum.contract_path(
            equation, *operands, shapes=True, optimize=[step[0] for step in taken.contraction_list]
        )
        assert ours.opt_cost == best.opt_cost
        assert shapes


def test_einsum_finds_a_cheap_path_for_tree():
    # contracted in the order written this needs B·r⁶ products: at r = 24 it would not return in a test's time
    tree = Indicator.parse("t:a s:b p:cd o:e t:f | abc def")
    r, b = 24, 8
    shapes = {"t": (b, r), "s": (b, r), "p": (b, r, r), "o": (b, r)}
    values = {slot: torch.ones(shape) for slot, shape in shapes.items()}
    theta = tree.contract(values, [torch.ones(r, r, r)] * 2)
    torch.testing.assert_close(theta, torch.full((b,), float(r**6)))
    assert einsum("Bi,Bi->B", torch.ones(2, 3), torch.ones(2, 3)).tolist() == [3, 3]
