"""Who has the cores: PyTorch, or the heavy kernels."""

from __future__ import annotations

import pytest
import torch

from recollect import threads
from recollect.threads import all_threads, one_thread, threads_given


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_threads_are_lent_and_given_back(monkeypatch):
    monkeypatch.setattr(threads, "CAN_SPREAD", True)
    monkeypatch.setattr(threads.numba.config, "NUMBA_NUM_THREADS", 8)
    assert threads_given() == 1
    with one_thread():
        assert (torch.get_num_threads(), threads_given()) == (1, 2)
        with all_threads():
            assert torch.get_num_threads() == 2
        assert torch.get_num_threads() == 1
        monkeypatch.setattr(threads, "CAN_SPREAD", False)
        assert threads_given() == 1
    assert torch.get_num_threads() == 2
    with all_threads():
        assert torch.get_num_threads() == 2


@pytest.mark.usefixtures("two_threads")
def test_an_error_gives_them_back_too():
    with pytest.raises(ValueError, match="inside"), one_thread(), all_threads():
        raise ValueError("inside")
    assert torch.get_num_threads() == 2
    assert threads_given() == 1
