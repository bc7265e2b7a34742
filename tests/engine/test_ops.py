"""Every operation, compiled and not, against its definition by plain indexing: values, gradients, edge cases."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import gradcheck

from backends import BACKENDS, EACH_BACKEND, running
from conftest import generator
from recollect.engine import compiled
from recollect.engine.ops import (
    Groups,
    bilinear_scores,
    diagonal_scores,
    gather_dot,
    gather_mul,
    grouped_mm,
    rank_counts,
)

REAL = (torch.float32, torch.float64)
COMPLEX = (torch.complex64, torch.complex128)
INF, NAN = float("inf"), float("nan")
OFTEN = settings(max_examples=40)

backends = st.sampled_from(BACKENDS)
threads = st.sampled_from([1, 3])
counts = st.sampled_from([30, 0, 1, 2, 3, 5])  # 30: ids repeat
widths = st.sampled_from([5, 1, 2, 3, 8, 17, 40])


def contiguous(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=generator(sum(shape)))


def strided(*shape: int, dtype: torch.dtype) -> Tensor:
    return contiguous(*shape[:-1], 2 * shape[-1], dtype=dtype)[..., ::2]


def transposed(*shape: int, dtype: torch.dtype) -> Tensor:
    return contiguous(*reversed(shape), dtype=dtype).permute(*reversed(range(len(shape))))


def conjugated(*shape: int, dtype: torch.dtype) -> Tensor:
    return contiguous(*shape, dtype=dtype).conj()


layouts = st.sampled_from([contiguous, strided, transposed, conjugated])


def ids(n: int, size: int, seed: int = 0) -> Tensor:
    """Return ids (n,) that are a column of a table of facts: not contiguous."""
    return torch.randint(size, (n, 2), generator=generator(seed))[:, 1]


def candidates(n: int, k: int, size: int, seed: int = 0) -> Tensor:
    return ids(n * k, size, seed).reshape(n, k)


def value_and_gradients(function: Callable[..., Tensor], *leaves: Tensor) -> list[Tensor]:
    """Return a function's value, and its gradients for tensors of any layout."""
    given = [leaf.detach().requires_grad_() for leaf in leaves]
    out = function(*given)
    double = torch.complex128 if out.is_complex() else torch.float64
    uneven = torch.randn(out.shape, dtype=double, generator=generator(1)).to(out.dtype)
    return [out.detach(), *torch.autograd.grad(out, given, uneven)]


def assert_same(function: Callable[..., Tensor], definition: Callable[..., Tensor], *leaves: Tensor) -> None:
    """Compare values and gradients with those of the definition in double precision."""
    found = value_and_gradients(function, *leaves)
    double = torch.complex128 if leaves[0].is_complex() else torch.float64
    wanted = value_and_gradients(definition, *(leaf.to(double) for leaf in leaves))
    single = leaves[0].dtype.to_real() == torch.float32
    tolerance = 1e-4 if single else 1e-10
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b.to(a.dtype), rtol=tolerance, atol=tolerance)


# -- rows of tables


@OFTEN
@given(backends, threads, st.sampled_from(REAL + COMPLEX), layouts, counts, widths)
def test_gather_mul_multiplies_rows_of_two_tables(backend, count, dtype, layout, n, width):
    i, j = ids(n, 7, 1), ids(n, 5, 2)
    a, b = layout(7, width, dtype=dtype), contiguous(5, width, dtype=dtype)
    with running(backend, count):
        assert_same(lambda a, b: gather_mul(a, i, b, j), lambda a, b: a[i] * b[j], a, b)
        assert_same(lambda b, a: gather_mul(b, j, a, i), lambda b, a: a[i] * b[j], b, a)


@EACH_BACKEND
@pytest.mark.parametrize("dtype", COMPLEX)
def test_gather_mul_of_a_table_with_its_own_conjugate(backend, dtype):
    i, j = ids(30, 7, 1), ids(30, 7, 2)
    table = contiguous(7, 3, dtype=dtype)
    with running(backend):
        assert_same(lambda a: gather_mul(a, i, a.conj(), j), lambda a: a[i] * a.conj()[j], table)
        squares = gather_mul(table, i, table.conj(), i)
    torch.testing.assert_close(squares.imag, torch.zeros(30, 3, dtype=dtype.to_real()))


@OFTEN
@given(backends, threads, st.sampled_from(REAL), layouts, counts, st.sampled_from([4, 0, 1]), widths)
def test_gather_dot_is_the_dot_product_with_each_candidate(backend, count, dtype, layout, n, k, width):
    own = candidates(n, k, 7)
    query, table = layout(n, width, dtype=dtype), layout(7, width, dtype=dtype)
    with running(backend, count):
        assert_same(
            lambda q, x: gather_dot(q, x, own), lambda q, x: torch.einsum("bd,bkd->bk", q, x[own]), query, table
        )


@EACH_BACKEND
def test_gradients_may_be_expanded(backend):
    rows, others = ids(20, 5), candidates(20, 2, 5)
    table = contiguous(5, 3, dtype=torch.float64).requires_grad_()
    with running(backend):
        (found,) = torch.autograd.grad(gather_dot(table[rows], table, others).sum(), table)
    (wanted,) = torch.autograd.grad((table[rows][:, None] * table[others]).sum(), table)
    torch.testing.assert_close(found, wanted)


# -- products


def owners(n: int, is_sorted: bool) -> Tensor:
    """Return the matrix of each row, of five; two have no rows."""
    owner = torch.tensor([4, 0, 2])[ids(n, 3, 3)]
    return owner.sort().values if is_sorted else owner


def per_row_product(x: Tensor, rows: Tensor, matrices: Tensor, owner: Tensor) -> Tensor:
    flat = matrices.reshape(*matrices.shape[:2], matrices[0, 0].numel())
    return torch.einsum("nk,nkr->nr", x[rows], flat[owner])


@settings(max_examples=80)
@given(
    backends,
    threads,
    st.sampled_from(REAL),
    st.sampled_from([contiguous, transposed]),
    st.sampled_from([30, 1, 2, 3, 61]),
    widths,
    st.sampled_from([(3,), (1,), (8,), (17,), (40,), (2, 3)]),
    st.booleans(),
)
def test_grouped_mm_multiplies_rows_by_the_matrix_of_their_group(
    backend, count, dtype, layout, n, inner, right, is_sorted
):
    owner, rows = owners(n, is_sorted), ids(n, 9, 5)
    x, matrices = contiguous(9, inner, dtype=dtype), layout(5, inner, *right, dtype=dtype)
    groups = Groups.of(owner)
    with running(backend, count):
        assert_same(
            lambda x, m: grouped_mm(x, rows, m, groups), lambda x, m: per_row_product(x, rows, m, owner), x, matrices
        )


@EACH_BACKEND
@pytest.mark.parametrize("permuted", [(0, 2, 3, 1), (0, 3, 1, 2), (0, 2, 1, 3), (3, 2, 1, 0)])
def test_grouped_mm_takes_matrices_in_any_memory_order(backend, permuted):
    shape, owner, rows = (5, 6, 4, 2), owners(40, False), ids(40, 9)
    in_memory = contiguous(*(shape[permuted.index(axis)] for axis in range(4)), dtype=torch.float64)
    matrices, x = in_memory.permute(*permuted), contiguous(9, 6, dtype=torch.float64)
    assert matrices.shape == shape
    with running(backend):
        assert_same(
            lambda x, m: grouped_mm(x, rows, m, Groups.of(owner)),
            lambda x, m: per_row_product(x, rows, m, owner),
            x,
            matrices,
        )


@EACH_BACKEND
@pytest.mark.parametrize("rows_per_group", [40, 250])
def test_grouped_mm_of_real_sizes(backend, rows_per_group):
    owner, rows = owners(5 * rows_per_group, False), ids(5 * rows_per_group, 9)
    x, matrices = contiguous(9, 41, dtype=torch.float64), contiguous(5, 41, 61, dtype=torch.float64)
    with running(backend, 3):
        assert_same(
            lambda x, m: grouped_mm(x, rows, m, Groups.of(owner)),
            lambda x, m: per_row_product(x, rows, m, owner),
            x,
            matrices,
        )


@EACH_BACKEND
@pytest.mark.parametrize("matrices", [5, 0])
def test_grouped_mm_of_no_rows_has_no_rows(backend, matrices):
    none = torch.zeros(0, dtype=torch.int64)
    x, shared = torch.ones(9, 6), torch.ones(matrices, 6, 4)
    with running(backend):
        assert grouped_mm(x, none, shared, Groups.of(none)).shape == (0, 4)


@EACH_BACKEND
@pytest.mark.parametrize("count", [1, 3])
def test_groups_may_be_without_rows(backend, count):
    groups = Groups(None, torch.tensor([3, 0, 2, 4, 1]), torch.tensor([0, 0, 4, 4, 7, 7]))
    owner, rows = torch.tensor([0] * 4 + [4] * 3), ids(7, 9)
    x, matrices = contiguous(9, 5, dtype=torch.float64), contiguous(5, 5, 3, dtype=torch.float64)
    with running(backend, count):
        assert_same(
            lambda x, m: grouped_mm(x, rows, m, groups), lambda x, m: per_row_product(x, rows, m, owner), x, matrices
        )


@EACH_BACKEND
def test_one_grouping_serves_several_products(backend):
    owner, rows = owners(40, False), ids(40, 9)
    groups, x = Groups.of(owner), contiguous(9, 4, dtype=torch.float64)
    first, second = (torch.randn(5, 4, 4, dtype=torch.float64, generator=generator(seed)) for seed in (1, 2))
    with running(backend):
        for matrices in (first, second, first.mT, second):
            wanted = per_row_product(x, rows, matrices, owner)
            torch.testing.assert_close(grouped_mm(x, rows, matrices, groups), wanted)


def test_groups_sort_repeat_and_unsort_rows():
    owner = torch.tensor([3, 1, 3, 0, 1, 3])
    groups = Groups.of(owner)
    assert groups.matrix.tolist() == [0, 1, 3]
    assert groups.offsets.tolist() == [0, 1, 3, 6]
    assert groups.sort(torch.arange(6)).tolist() == [3, 1, 4, 0, 2, 5]  # in their order within a group
    assert groups.unsort(groups.sort(owner)).tolist() == owner.tolist()
    twice = groups.repeat(2)
    assert twice.sort(torch.arange(12)).tolist() == [6, 7, 2, 3, 8, 9, 0, 1, 4, 5, 10, 11]
    assert twice.offsets.tolist() == [0, 2, 6, 12]
    assert Groups.of(owner.sort().values).order is None


# -- scores


@OFTEN
@given(backends, threads, st.sampled_from(REAL), st.sampled_from([30, 1, 2]), widths, widths, st.booleans())
def test_bilinear_scores_are_those_of_facts_and_their_negatives(backend, count, dtype, n, rows, columns, is_sorted):
    owner, i, j = owners(n, is_sorted), candidates(n, 2, 9, 1), candidates(n, 2, 8, 2)

    def definition(m: Tensor, x: Tensor, y: Tensor) -> Tensor:
        scores = torch.einsum("nxa,nab,nyb->nxy", x[i], m[owner], y[j])
        return torch.stack([scores[:, 0, 0], scores[:, 1, 0], scores[:, 0, 1]], dim=1)

    leaves = [contiguous(*shape, dtype=dtype) for shape in ((5, rows, columns), (9, rows), (8, columns))]
    with running(backend, count):
        assert_same(lambda m, x, y: bilinear_scores(m, Groups.of(owner), x, i, y, j), definition, *leaves)


@OFTEN
@given(
    backends,
    threads,
    st.sampled_from(REAL + COMPLEX),
    layouts,
    counts,
    st.sampled_from([1, 0, 3]),
    st.sampled_from([2, 0, 1]),
    widths,
)
def test_diagonal_scores_are_those_of_facts_and_their_negatives(backend, count, dtype, layout, n, k, m, width):
    s, o, other_s, other_o = ids(n, 7, 1), ids(n, 5, 2), candidates(n, k, 7, 3), candidates(n, m, 5, 4)

    def definition(c: Tensor, x: Tensor, y: Tensor) -> Tensor:
        own = torch.einsum("nr,nr,nr->n", c, x[s], y[o])[:, None]
        by_subject = torch.einsum("nr,nkr,nr->nk", c, x[other_s], y[o])
        by_object = torch.einsum("nr,nr,nkr->nk", c, x[s], y[other_o])
        scores = torch.cat([own, by_subject, by_object], dim=1)
        return scores.real if scores.is_complex() else scores

    leaves = [layout(rows, width, dtype=dtype) for rows in (n, 7, 5)]
    with running(backend, count):
        assert_same(lambda c, x, y: diagonal_scores(c, x, s, y, o, other_s, other_o).clone(), definition, *leaves)


def rank_counts_by_loops(row, own, known):
    """Return greater, ties and others of one row, raw and filtered."""
    if any(x != x for x in row):
        return [[-1] * 3] * 2
    others = [n for n in range(len(row)) if n != own]
    unknown = [n for n in others if n not in known]
    return [
        [sum(row[n] > row[own] for n in ids), sum(row[n] == row[own] for n in ids), len(ids)]
        for ids in (others, unknown)
    ]


@OFTEN
@given(backends, st.sampled_from(REAL), st.sampled_from([contiguous, strided, transposed]), counts, widths)
def test_rank_counts_are_those_of_a_loop(backend, dtype, layout, n, width):
    scores = layout(n, width, dtype=dtype).round()  # rounded: many are equal
    scores[torch.rand(n, width, generator=generator(3)) < 0.01] = NAN
    own, length = ids(n, width), ids(n, width + 1, 1)
    known = torch.rand(n, width, generator=generator(4)).argsort(dim=1)  # the first `length` of each row
    start = torch.arange(n) * width
    with running(backend):
        found = rank_counts(scores, own, start, start + length, known.flatten())
    lists = [row[:k] for row, k in zip(known.tolist(), length.tolist(), strict=True)]
    rows = zip(scores.tolist(), own.tolist(), lists, strict=True)
    assert found.tolist() == [rank_counts_by_loops(*row) for row in rows]


@EACH_BACKEND
@pytest.mark.parametrize(("own", "greater", "ties"), [(0, 0, 0), (1, 3, 0), (2, 1, 1), (3, 1, 1)])
def test_rank_counts_of_infinities_and_zeros(backend, own, greater, ties):
    scores = torch.tensor([[INF, -INF, 0.0, -0.0]])
    none = torch.zeros(1, dtype=torch.int64)
    with running(backend):
        counts = rank_counts(scores, torch.tensor([own]), none, none, none)
    assert counts.tolist() == [[[greater, ties, 3]] * 2]


@EACH_BACKEND
def test_rank_counts_of_scores_with_gradients(backend):
    scores = torch.tensor([[1.0, 2.0, 3.0]], requires_grad=True)
    known = torch.tensor([2])
    with running(backend):
        counts = rank_counts(scores, torch.tensor([1]), torch.tensor([0]), torch.tensor([1]), known)
    assert counts.tolist() == [[[1, 0, 2], [0, 0, 1]]]


# -- values that are not finite


def specials(*shape: int) -> Tensor:
    """Return rows of ordinary numbers, some of which are 0, NaN or infinite."""
    values = contiguous(*shape, dtype=torch.float32)
    chance = torch.rand(shape, generator=generator(8))
    for low, value in ((0.0, NAN), (0.1, INF), (0.2, -INF), (0.3, 0.0)):
        values[(chance >= low) & (chance < low + 0.1)] = value
    return values


TWO = candidates(12, 2, 7, 5)
SPECIAL = {
    "gather_mul": (lambda x, y: gather_mul(x, ids(12, 7), y, ids(12, 7, 1)), (7, 5), (7, 5)),
    "gather_dot": (lambda q, x: gather_dot(q, x, TWO), (12, 5), (7, 5)),
    "grouped_mm": (lambda x, m: grouped_mm(x, ids(12, 7), m, Groups.of(ids(12, 3))), (7, 5), (3, 5, 4)),
    "diagonal_scores": (
        lambda c, x, y: diagonal_scores(c, x, ids(12, 7), y, ids(12, 7, 1), TWO, TWO),
        (12, 5),
        (7, 5),
        (7, 5),
    ),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_nan_and_infinities_go_through_as_in_pytorch(name):
    function, *shapes = SPECIAL[name]
    found = []
    for backend in ("compiled", "reference"):
        with running(backend):
            found.append(value_and_gradients(function, *(specials(*shape) for shape in shapes)))
    assert not found[1][0].isfinite().all()
    for ours, wanted in zip(*found, strict=True):
        torch.testing.assert_close(ours, wanted, equal_nan=True, rtol=1e-4, atol=1e-4)


# -- gradients, dtypes, threads


@EACH_BACKEND
def test_gradcheck_of_every_operation(backend):
    i, j, own = ids(6, 4, 1), ids(6, 3, 2), candidates(6, 2, 4)
    a, b, q, c = (contiguous(n, 3, dtype=torch.float64).requires_grad_() for n in (4, 3, 6, 4))
    m = contiguous(5, 3, 2, dtype=torch.float64).requires_grad_()
    u, v = (contiguous(n, 2, dtype=torch.complex128).requires_grad_() for n in (6, 4))
    y = contiguous(4, 2, dtype=torch.float64).requires_grad_()
    groups = Groups.of(owners(6, False))
    with running(backend):
        assert gradcheck(lambda a, b: gather_mul(a, i, b, j), (a, b))
        assert gradcheck(lambda u, v: gather_mul(u, i, v.conj(), i), (u, v))
        assert gradcheck(lambda q, a: gather_dot(q, a, own), (q, a))
        assert gradcheck(lambda a, m: grouped_mm(a, i, m, groups), (a, m))
        assert gradcheck(lambda m, a, y: bilinear_scores(m, groups, a, own, y, own), (m, a, y))
        assert gradcheck(lambda q, a, c: diagonal_scores(q, a, i, c, i, own, own), (q, a, c))
        assert gradcheck(lambda u, v: diagonal_scores(u, v, i, v.conj(), i, own, own), (u, v))


def test_kernels_serve_only_tensors_of_one_supported_dtype_on_the_cpu():
    one = torch.ones(1)
    with running("compiled"):
        assert compiled.is_compiled(one, one)
        assert not compiled.is_compiled(one, one.double())
        assert not compiled.is_compiled(one.bfloat16())
        assert not compiled.is_compiled(one.to("meta"))
    with running("reference"):
        assert not compiled.is_compiled(one)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_other_dtypes_take_the_definition(dtype):
    table, i, own = contiguous(5, 4, dtype=torch.float32).to(dtype), ids(20, 5), candidates(5, 3, 5)
    close = {"rtol": 0.02, "atol": 0.02}
    torch.testing.assert_close(gather_mul(table, i, table, i).float(), (table.float() ** 2)[i], **close)
    wanted = torch.einsum("bd,bkd->bk", table.float(), table.float()[own])
    torch.testing.assert_close(gather_dot(table, table, own).float(), wanted, **close)


def test_without_gradients_nothing_is_recorded():
    table = contiguous(5, 4, dtype=torch.float32).requires_grad_()
    with torch.no_grad():
        assert not gather_mul(table, ids(3, 5), table, ids(3, 5)).requires_grad
