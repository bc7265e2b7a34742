"""The compiled kernels and grouped products against the same sums in plain PyTorch, in values and gradients."""

from __future__ import annotations

from collections.abc import Callable

import numba
import numpy as np
import pytest
import torch
from recollect.engine.grouped import Groups, grouped_matmul, matrix_scores
from torch import Tensor
from torch.autograd import gradcheck

from conftest import generator
from recollect.engine import grouped
from recollect.engine import kernels as native
from recollect.engine import ops as kernels
from recollect.engine.ops import add_outer, gather_dot, gather_mul, is_compiled, matmul, rows_times, scatter_add, take

REAL = (torch.float32, torch.float64)
COMPLEX = (torch.complex64, torch.complex128)
WIDTHS = pytest.mark.parametrize("width", [1, 3, 8, 17])


def contiguous(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(shape, dtype=dtype, generator=generator(sum(shape)))


def strided(*shape: int, dtype: torch.dtype) -> Tensor:
    return contiguous(*shape[:-1], 2 * shape[-1], dtype=dtype)[..., ::2]


def transposed(*shape: int, dtype: torch.dtype) -> Tensor:
    return contiguous(*reversed(shape), dtype=dtype).permute(*reversed(range(len(shape))))


def conjugated(*shape: int, dtype: torch.dtype) -> Tensor:
    return contiguous(*shape, dtype=dtype).conj()


LAYOUTS = pytest.mark.parametrize("make", [contiguous, strided, transposed])


def ids(n: int, size: int, seed: int = 0) -> Tensor:
    return torch.randint(size, (n,), generator=generator(seed))


def value_and_gradients(function: Callable[..., Tensor], *leaves: Tensor) -> list[Tensor]:
    """A function's value, and its gradients for tensors of any layout."""
    given = [leaf.detach().requires_grad_() for leaf in leaves]
    out = function(*given)
    uneven = torch.randn(out.shape, dtype=out.dtype, generator=generator(1))
    return [out.detach(), *torch.autograd.grad(out, given, uneven)]


def assert_plain_is_the_same(monkeypatch, function: Callable[..., Tensor], *leaves: Tensor) -> None:
    compiled = value_and_gradients(function, *leaves)
    monkeypatch.setattr(kernels, "NATIVE", False)
    plain = value_and_gradients(function, *leaves)
    assert len(compiled) == len(leaves) + 1
    for a, b in zip(compiled, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@WIDTHS
@LAYOUTS
@pytest.mark.parametrize("dtype", [*REAL, *COMPLEX])
@pytest.mark.parametrize("n", [0, 30])  # 30 of 7: rows repeat
def test_take(monkeypatch, dtype, make, width, n):
    rows = ids(n, 7)
    assert_plain_is_the_same(monkeypatch, lambda table: take(table, rows), make(7, width, 2, dtype=dtype))


@WIDTHS
@pytest.mark.parametrize("dtype", [*REAL, *COMPLEX])
@pytest.mark.parametrize("n", [0, 30])
@pytest.mark.parametrize("make", [contiguous, strided, transposed, conjugated])
def test_row_product(monkeypatch, dtype, make, width, n):
    i, j = ids(n, 7, 1), ids(n, 5, 2)
    a, b = make(7, width, dtype=dtype), contiguous(5, width, dtype=dtype)
    assert_plain_is_the_same(monkeypatch, lambda a, b: gather_mul(a, i, b, j), a, b)


@pytest.mark.parametrize("dtype", COMPLEX)
def test_row_product_of_a_table_with_its_conjugate(monkeypatch, dtype):
    i, j = ids(30, 7, 1), ids(30, 7, 2)
    a = contiguous(7, 3, dtype=dtype)
    assert_plain_is_the_same(monkeypatch, lambda a: gather_mul(a, i, a.conj(), j), a)
    torch.testing.assert_close(gather_mul(a, i, a.conj(), i).imag, torch.zeros_like(a.real)[i])


@WIDTHS
@LAYOUTS
@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize(("n", "k"), [(30, 4), (30, 1)])
def test_row_dot(monkeypatch, dtype, make, width, n, k):
    candidates = ids(n * k, 7).view(n, k)
    query, table = make(n, width, dtype=dtype), make(7, width, dtype=dtype)
    assert_plain_is_the_same(monkeypatch, lambda q, x: gather_dot(q, x, candidates), query, table)


@pytest.mark.parametrize(("n", "k"), [(0, 4), (30, 0)])
def test_row_dot_of_nothing(n, k):
    query, table = contiguous(n, 3, dtype=torch.float64), contiguous(7, 3, dtype=torch.float64)
    found = value_and_gradients(lambda q, x: gather_dot(q, x, ids(n * k, 7).view(n, k)), query, table)
    assert [x.shape for x in found] == [(n, k), (n, 3), (7, 3)]
    assert not any(x.any() for x in found)


@pytest.mark.parametrize("dtype", [*REAL, *COMPLEX])
@pytest.mark.parametrize("n", [0, 30])
@pytest.mark.parametrize("make", [contiguous, strided, transposed, conjugated])
def test_add_rows(monkeypatch, dtype, make, n):
    rows, values = ids(n, 4), make(n, 3, 2, dtype=dtype)
    summed = scatter_add(6, rows, values)
    assert summed.shape == (6, 3, 2)
    assert not summed[4:].any()
    monkeypatch.setattr(kernels, "NATIVE", False)
    torch.testing.assert_close(summed, scatter_add(6, rows, values))


def test_ids_may_be_strided_and_gradients_expanded():
    columns = torch.randint(5, (20, 4), generator=generator())
    table = contiguous(5, 3, dtype=torch.float64).requires_grad_()
    scores = gather_dot(take(table, columns[:, 0]), table, columns[:, 1::2])
    scores.sum().backward()  # a gradient of one number, expanded
    given, table.grad = table.grad, None
    (table[columns[:, 0]][:, None] * table[columns[:, 1::2]]).sum().backward()
    torch.testing.assert_close(given, table.grad)


def test_without_compiled_kernels_for_a_type_the_sums_are_the_same():
    assert is_compiled(torch.ones(1), torch.ones(2))
    assert not is_compiled(torch.ones(1), torch.ones(1, dtype=torch.complex128))
    assert not is_compiled(torch.ones(1), torch.ones(1, dtype=torch.bfloat16))
    table, i = contiguous(5, 4, dtype=torch.float32), ids(20, 5)
    half = table.to(torch.bfloat16)
    for function in (lambda x: gather_mul(x, i, x, i), lambda x: gather_dot(x, x, ids(15, 5).view(5, 3))):
        torch.testing.assert_close(function(half), function(half.float()).to(torch.bfloat16), rtol=0.02, atol=0.02)


def test_what_is_compiled_for_different_things_is_kept_in_different_files(tmp_path, monkeypatch):
    """Whatever else a folder has, as when two processes compile at once."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    names = []
    for dtype in (np.float32, np.float64):
        for file in tmp_path.rglob("*.nbi"):
            file.unlink()  # the other process has not yet told of its own
        kernel = native.kernel(native.scatter_add.py_func)
        kernel(np.zeros((2, 3), dtype), np.arange(2), np.zeros((2, 3), dtype))
        names.append({file.name for file in tmp_path.rglob("*.nbc")})
    assert len(names[0]) == 1
    assert len(names[1]) == 2


@pytest.mark.parametrize("dtype", [*REAL, *COMPLEX])
@pytest.mark.parametrize("make", [contiguous, strided, transposed, conjugated])
@pytest.mark.parametrize(("n", "inner", "columns"), [(30, 5, 3), (3, 5, 30), (0, 5, 3), (3, 1, 1)])
def test_matmul(make, dtype, n, inner, columns):
    rows, matrix = make(n, inner, dtype=dtype), make(inner, columns, dtype=dtype)
    found, wanted = (value_and_gradients(multiply, rows, matrix) for multiply in (matmul, torch.matmul))
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("needed", [[], [0], [1], [0, 1]])
def test_a_gradient_of_matmul_that_nobody_asks_for_is_not_made(needed, monkeypatch):
    products, multiplied = [], kernels._multiplied
    monkeypatch.setattr(kernels, "_multiplied", lambda a, b: (products.append(1), multiplied(a, b))[1])
    sides = [contiguous(4, 4, dtype=torch.float64) for _ in range(2)]
    for side in needed:
        sides[side].requires_grad_()
    out = matmul(*sides)
    if needed:
        out.sum().backward()
    assert len(products) == 1 + len(needed)


def test_gradcheck_of_the_row_kernels():
    i, j = ids(6, 4, 1), ids(6, 3, 2)
    a, b = (contiguous(n, 3, dtype=torch.float64).requires_grad_() for n in (4, 3))
    q = contiguous(5, 3, dtype=torch.float64).requires_grad_()
    assert gradcheck(lambda a: take(a, i), (a,))
    assert gradcheck(lambda a, b: gather_mul(a, i, b, j), (a, b))
    assert gradcheck(lambda q, a: gather_dot(q, a, ids(10, 4).view(5, 2)), (q, a))
    c, d = (contiguous(n, 2, dtype=torch.complex128).requires_grad_() for n in (4, 3))
    assert gradcheck(lambda c: take(c, i), (c,))
    assert gradcheck(lambda c, d: gather_mul(c, i, d.conj(), j), (c, d))


# rows times matrices that they share


def owners(n: int, order: str) -> Tensor:
    """The matrix of each row: some of few matrices, one of them never."""
    owner = torch.tensor([4, 0, 2])[ids(n, 3, 3)]
    return owner.sort().values if order == "sorted" else owner


def plain_grouped(rows: Tensor, index: Tensor, matrices: Tensor, summed: int, owner: Tensor) -> Tensor:
    flat = matrices.flatten(1, summed)  # (G, K, *R)
    return torch.einsum("n...k,nkr->n...r", rows[index], flat.flatten(2)[owner]).unflatten(
        -1, matrices.shape[1 + summed :]
    )


@pytest.fixture(params=["compiled", "tiles", "loop"])
def way(request, monkeypatch):
    """Each way in which a grouped product is made."""
    if request.param == "tiles":
        monkeypatch.setattr(kernels, "NATIVE", False)
    if request.param == "loop":
        monkeypatch.setattr(grouped, "LARGE", 0)
    return request.param


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("order", ["sorted", "any"])
@pytest.mark.parametrize("left", [(), (2,), (2, 3)])
@pytest.mark.parametrize(
    ("summed", "right", "permuted"),
    [
        ((3,), (5,), (0, 1, 2)),
        ((5,), (3,), (0, 2, 1)),
        ((17,), (1,), (0, 1, 2)),
        ((1,), (8,), (0, 2, 1)),
        ((33,), (19,), (0, 1, 2)),
        ((19,), (40,), (0, 2, 1)),
        ((2, 3), (4,), (0, 1, 2, 3)),
        ((2, 3), (4,), (0, 3, 1, 2)),
        ((2,), (3, 4), (0, 2, 3, 1)),
        ((2, 3), (4, 2), (0, 3, 1, 4, 2)),
    ],
)
def test_grouped_products(dtype, order, left, summed, right, permuted):
    owner, index = owners(60, order), ids(60, 9, 5)
    # as they lie in memory, then seen as (G, *summed, *right)
    shape = (5, *summed, *right)
    matrices = contiguous(*(shape[permuted.index(axis)] for axis in range(len(shape))), dtype=dtype).permute(*permuted)
    assert matrices.shape == shape
    rows = contiguous(9, *left, int(torch.tensor(summed).prod()), dtype=dtype)
    groups = Groups.of(owner)
    ours = value_and_gradients(lambda x, m: grouped_matmul(x, index, m, len(summed), groups), rows, matrices)
    plain = value_and_gradients(lambda x, m: plain_grouped(x, index, m, len(summed), owner), rows, matrices)
    for a, b in zip(ours, plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("order", ["sorted", "any"])
@pytest.mark.parametrize("left", [(), (2,)])
@pytest.mark.parametrize("each", [torch.arange(30), torch.randperm(30, generator=generator(5)), ids(30, 30)])
def test_grouped_products_of_as_many_rows_as_entries(order, left, each):
    owner = owners(30, order)
    rows, matrices = contiguous(30, *left, 5, dtype=torch.float64), contiguous(7, 5, 3, dtype=torch.float64)
    found = value_and_gradients(lambda x, m: grouped_matmul(x, each, m, 1, Groups.of(owner)), rows, matrices)
    wanted = value_and_gradients(lambda x, m: plain_grouped(x, each, m, 1, owner), rows, matrices)
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_grouped_products_of_few_rows(way, n):
    if n == 0 and way == "tiles":
        return  # no tile, no shape
    owner, index = owners(n, "any"), ids(n, 9)
    rows, matrices = (contiguous(*shape, dtype=torch.float64) for shape in ((9, 6), (5, 6, 4)))
    ours = value_and_gradients(lambda x, m: grouped_matmul(x, index, m, 1, Groups.of(owner)), rows, matrices)
    plain = value_and_gradients(lambda x, m: plain_grouped(x, index, m, 1, owner), rows, matrices)
    for a, b in zip(ours, plain, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize(("rows", "columns"), [(3, 2), (5, 16), (16, 17), (18, 40), (40, 33)])
@pytest.mark.parametrize(("xs", "ys"), [(1, 1), (1, 2), (2, 1), (2, 2), (3, 4)])
def test_scores_by_a_matrix(dtype, rows, columns, xs, ys):
    """Narrower than a register, as wide, and wider; groups of one fact, of few and of many."""
    group = torch.tensor([1] + 3 * [4] + [0] + 25 * [2])
    i, j = ids(30 * xs, 9, 1).view(30, xs), ids(30 * ys, 8, 2).view(30, ys)
    leaves = [contiguous(*shape, dtype=dtype) for shape in ((5, rows, columns), (9, rows), (8, columns))]

    def plain(m: Tensor, x: Tensor, y: Tensor) -> Tensor:
        own = torch.einsum("nka,nab,nb->nk", x[i], m[group], y[j[:, 0]])
        return torch.cat([own, torch.einsum("na,nab,nlb->nl", x[i[:, 0]], m[group], y[j[:, 1:]])], dim=1)

    ours = value_and_gradients(lambda m, x, y: matrix_scores(m, Groups.of(group), x, i, y, j), *leaves)
    for a, b in zip(ours, value_and_gradients(plain, *leaves), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("way")
def test_one_grouping_serves_several_products():
    """Tiles keep copies of matrices: another table, or the same one transposed, must not get them."""
    owner, index = owners(40, "any"), ids(40, 9)
    groups, rows = Groups.of(owner), contiguous(9, 4, dtype=torch.float64)
    first, second = (torch.randn(5, 4, 4, dtype=torch.float64, generator=generator(seed)) for seed in (1, 2))
    for matrices in (first, second, first.mT, second, first):
        want = plain_grouped(rows, index, matrices, 1, owner)
        torch.testing.assert_close(grouped_matmul(rows, index, matrices, 1, groups), want)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("needed", ["rows", "matrices"])
def test_a_gradient_that_nobody_asks_for_is_not_made(needed):
    owner, index = owners(40, "any"), ids(40, 9)
    leaves = {"rows": contiguous(9, 6, dtype=torch.float64), "matrices": contiguous(5, 6, 4, dtype=torch.float64)}
    leaves[needed].requires_grad_()
    out = grouped_matmul(leaves["rows"], index, leaves["matrices"], 1, Groups.of(owner))
    want = plain_grouped(leaves["rows"], index, leaves["matrices"], 1, owner)
    torch.testing.assert_close(*(torch.autograd.grad(x.square().sum(), leaves[needed])[0] for x in (out, want)))


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("swapped", [False, True])
def test_gradcheck_of_grouped_products(swapped):
    owner, index = owners(7, "any"), ids(7, 3)
    rows = contiguous(3, 2, 5, dtype=torch.float64).requires_grad_()
    matrices = contiguous(5, *((2, 5) if swapped else (5, 2)), dtype=torch.float64).requires_grad_()

    def product(x: Tensor, m: Tensor) -> Tensor:
        return grouped_matmul(x, index, m.mT if swapped else m, 1, Groups.of(owner))

    assert gradcheck(product, (rows, matrices))


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("dtype", REAL)
@pytest.mark.parametrize("width", [1, 3, 4, 9])
def test_rows_times_and_add_outer(width, dtype, swapped):
    groups, index = Groups.of(owners(31, "sorted")), ids(31, 9)
    owner = owners(31, "sorted")
    rows, right = contiguous(9, width, dtype=dtype), contiguous(31, 6, dtype=dtype)
    matrices = contiguous(5, 6, width, dtype=dtype).mT if swapped else contiguous(5, width, 6, dtype=dtype)
    made = rows_times(rows, index, matrices, groups.starts, groups.matrix)
    torch.testing.assert_close(made, torch.einsum("nk,nkr->nr", rows[index], matrices[owner]))
    summed = add_outer(rows, index, right, matrices, groups.starts, groups.matrix)
    each = torch.einsum("nk,nr->nkr", rows[index], right)
    torch.testing.assert_close(summed, torch.zeros_like(matrices).index_add(0, owner, each))


def test_groups_of_any_order():
    owner = torch.tensor([3, 1, 3, 0, 1, 3])
    groups = Groups.of(owner)
    assert (groups.matrix.tolist(), groups.counts.tolist(), groups.starts.tolist()) == (
        [0, 1, 3],
        [1, 2, 3],
        [0, 1, 3, 6],
    )
    assert groups.order is not None
    assert groups.order.tolist() == [3, 1, 4, 0, 2, 5]  # as they came within a group
    assert Groups.of(owner.sort().values).order is None
    assert groups.bounds == [(0, 0, 1), (1, 1, 3), (3, 3, 6)]
    twice = groups.repeated(2)
    assert twice.order is not None
    assert twice.order.tolist() == [6, 7, 2, 3, 8, 9, 0, 1, 4, 5, 10, 11]
    assert twice.counts.tolist() == [2, 4, 6]
