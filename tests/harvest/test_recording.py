"""Recording sees each call, keeps few and faithful copies, and is not seen itself."""

import copyreg
import gc
import threading

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from autograd_cookbook.harvest import copying, recording
from autograd_cookbook.harvest.recording import Recorded, Recorder
from tests.harvest import functions
from tests.harvest.functions import Double, InPlace, WithModule, leaf
from tests.support import since


def only(recorder: Recorder) -> Recorded:
    (entry,) = recorder.functions.values()
    return entry


# Since torch 2.15, apply is in C, and what was taken of it before the recording asks nobody.
APPLY_IS_IN_C = not isinstance(vars(torch.autograd.Function)["apply"], classmethod)


def test_a_call_is_seen_as_an_attribute_and_taken():
    with Recorder() as recorder:
        taken = Double.apply
        Double.apply(leaf(3))
        taken(leaf(3, 3))
    assert only(recorder).place.name == "tests.harvest.functions.Double"
    assert only(recorder).calls == len(only(recorder).kept) == 2


def test_apply_taken_before_the_recording_is_seen_where_it_is_in_python():
    with Recorder() as recorder:
        functions.apply_taken_at_import(leaf(3))
    assert [place.name for place in recorder.functions] == ["tests.harvest.functions.Double"] * (not APPLY_IS_IN_C)


def test_what_is_recorded_is_called_without_the_recording():
    with Recorder() as recorder:
        Double.apply(leaf(3))
    (call,) = only(recorder).kept.values()
    assert torch.equal(call.target(*call.args), 2 * call.args[0])
    assert only(recorder).calls == 1
    assert call.target == Double.apply


@pytest.mark.parametrize("function", [Double, functions.Flagged])
def test_keywords_are_recorded_as_forward_gets_them(function):
    with Recorder() as recorder:
        if not since("2.13"):
            with pytest.raises(TypeError, match="keyword"):
                function.apply(leaf(3), flag=True)
            return
        function.apply(leaf(3), flag=True)
    (call,) = only(recorder).kept.values()
    assert call.args[1:] == (True,)


def test_operators_with_a_formula_are_seen_with_keywords_and_lists():
    x = leaf(4)
    with Recorder() as recorder:
        functions.define_join()  # torch takes the apply of an operator with lists when it is defined
        functions.scale(x, factor=3.0)
        torch.ops.harvest.join([x, x[1:]])
    by_name = {entry.place.name: entry for entry in recorder.functions.values()}
    assert sorted(by_name) == ["harvest::join", "harvest::scale"]
    (scaled,), (joined,) = (by_name[name].best(1) for name in ("harvest::scale", "harvest::join"))
    assert torch.equal(scaled.target(*scaled.args), 3 * x)
    whole, part = joined.args[0]
    assert whole.untyped_storage().data_ptr() == part.untyped_storage().data_ptr()
    assert torch.equal(joined.target(*joined.args), torch.cat([x, x[1:]]))


def test_torch_s_own_functions_are_not_recorded():
    with Recorder() as recorder:
        checkpoint(torch.sin, leaf(3), use_reentrant=True).sum().backward()
    assert not recorder.functions


def test_inner_tensors_modules_and_views_stay_together():
    linear = nn.Linear(3, 3)
    with Recorder() as recorder:
        WithModule.apply(leaf(2, 3), linear, linear.weight, linear.weight.t())
    _, module, weight, view = only(recorder).best(1)[0].args
    assert module.weight is weight
    assert weight is not linear.weight
    assert view.data_ptr() == weight.data_ptr()
    assert view.shape == (3, 3)


def test_a_copy_is_what_the_call_was_given_before_it_wrote():
    x = torch.ones(3, requires_grad=True).clone()
    with Recorder() as recorder:
        InPlace.apply(x)
    assert torch.equal(x, torch.full((3,), 3.0))
    assert torch.equal(only(recorder).best(1)[0].args[0], torch.ones(3))
    assert only(recorder).best(1)[0].args[0].requires_grad


def test_distinct_calls_are_kept_of_each_kind_the_one_that_suits_an_audit():
    with Recorder() as recorder:
        for shape in ((64, 64), (4, 4), (1, 1)):
            Double.apply(leaf(*shape))
        Double.apply(torch.ones(4, 4, requires_grad=True))
        Double.apply(leaf(4, dtype=torch.float64))
        Double.apply(leaf(4, 4), True)
    kept = only(recorder).kept.values()
    assert only(recorder).calls == 6
    found = {(tuple(call.args[0].shape), call.args[1:] == (True,)) for call in kept}
    assert found == {((4,), False), ((4, 4), False), ((4, 4), True)}
    assert not any(bool((call.args[0] == 1).all()) for call in kept)


@pytest.mark.parametrize("first", [True, False])
def test_a_call_with_finite_numbers_is_preferred(first):
    infinite = torch.full((4, 4), -torch.inf).fill_diagonal_(1.0).requires_grad_()
    with Recorder() as recorder:
        for x in (infinite, leaf(3, 2)) if first else (leaf(3, 2), infinite):
            Double.apply(x)
    (call,) = only(recorder).best(3)
    assert call.args[0].shape == (3, 2)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_sparse_tensors_of_each_layout_are_recorded():
    dense = torch.eye(3)
    with Recorder() as recorder:
        for sparse in (dense.to_sparse_coo(), dense.to_sparse_csr(), dense.to_sparse_csc()):
            Double.apply(sparse.requires_grad_())
    copies = [call.args[0] for call in only(recorder).best(3)]
    assert {copy.layout for copy in copies} == {torch.sparse_coo, torch.sparse_csr, torch.sparse_csc}
    assert all(copy.requires_grad and torch.equal(copy.to_dense(), dense) for copy in copies)


def test_a_sparse_tensor_takes_the_bytes_that_it_holds():
    sparse = torch.sparse_coo_tensor(
        torch.tensor([[0, 2**20], [5, 7]]), torch.ones(2), (2**21, 2**21), check_invariants=True
    )
    with Recorder() as recorder:
        Double.apply(sparse.requires_grad_())
    (call,) = only(recorder).best(1)
    assert call.size == 2 * (2 * 8 + 4)


def test_without_grad_a_function_is_reached_and_there_is_nothing_to_audit():
    with Recorder() as recorder, torch.no_grad():
        Double.apply(leaf(3))
    assert only(recorder).calls == 1
    assert not only(recorder).kept
    assert "no_grad" in only(recorder).reason


def test_inside_of_transforms_it_is_reached():
    with Recorder() as recorder:
        assert torch.func.grad(lambda x: Double.apply(x).sum())(torch.ones(2)).tolist() == [2.0, 2.0]
    assert only(recorder).reason == "it was called only inside of transforms of torch.func"


def test_compiled_code_does_not_break():
    x = leaf(3)
    with Recorder():
        compiled = torch.compile(lambda x: Double.apply(x) + 1, fullgraph=True, backend="aot_eager")
        compiled(x).sum().backward()
    assert torch.equal(x.grad, torch.full((3,), 2.0))


@pytest.mark.parametrize("uncopyable", [(i for i in "ab"), threading.Lock()])
def test_what_cannot_be_copied_is_a_reason_and_not_consumed(uncopyable):
    with Recorder() as recorder:
        assert Double.apply(leaf(3), uncopyable).shape == (3,)
    assert "cannot be copied" in only(recorder).reason
    assert not hasattr(uncopyable, "__next__") or next(uncopyable) == "a"


def test_large_calls_and_too_many_bytes_are_not_copied(monkeypatch):
    monkeypatch.setattr(copying, "LIMIT", 2**12)
    monkeypatch.setattr(recording, "MEMORY", 2**12)
    with Recorder() as recorder:
        Double.apply(leaf(2**12))
        assert "at most" in only(recorder).reason
        for i in range(2, 8):
            Double.apply(leaf(*[2] * i, 2**9 // 2**i), i)
    assert recorder.bytes <= 2**12
    assert "copies of other calls" in only(recorder).reason


def test_results_exceptions_and_random_numbers_are_the_same():
    def program():
        torch.manual_seed(0)
        x = leaf(3, 3)
        Double.apply(x * torch.rand(3)).sum().backward()
        with pytest.raises(TypeError) as caught:
            Double.apply(x, 1, 2, 3)
        return x.grad, torch.rand(3), str(caught.value)

    grad, drawn, message = program()
    with Recorder():
        other = program()
    assert torch.equal(grad, other[0])
    assert torch.equal(drawn, other[1])
    assert message == other[2]


def test_a_failure_of_the_recorder_is_not_one_of_the_program_and_is_the_reason(monkeypatch):
    monkeypatch.setattr(recording, "copied", lambda args: 1 / 0)
    with Recorder() as recorder:
        assert Double.apply(leaf(3)).shape == (3,)
    assert only(recorder).reason == "its call could not be recorded: ZeroDivisionError: division by zero"


def test_afterwards_torch_is_as_it_was_and_classes_are_not_kept():
    base = torch.autograd.Function if APPLY_IS_IN_C else torch.autograd.function._SingleLevelFunction
    before = vars(base).get("apply")
    call = torch.autograd.function.custom_function_call
    with Recorder():
        assert vars(base)["apply"] is not before
    assert vars(base).get("apply") is before
    assert torch.autograd.function.custom_function_call is call
    with Recorder() as recorder:
        for _ in range(3):
            cls = type("Local", (Double,), {})
            with torch.no_grad():
                cls.apply(leaf(2))
        del cls
        gc.collect()
        assert only(recorder).calls == 3


def test_a_pattern_selects_by_full_name_or_last_part():
    for pattern, wanted in (("Double", True), ("tests.harvest.*", True), ("Doub", False), ("other.*", False)):
        with Recorder(pattern) as recorder:
            Double.apply(leaf(2))
        assert bool(recorder.functions) is wanted


def test_keys_of_a_dict_inside_of_an_argument_are_copied():
    class Holds:
        def __init__(self):
            self.keys = {"a": 1}.keys()

    table = dict(copyreg.dispatch_table)
    with Recorder() as recorder:
        Double.apply(leaf(3), Holds())
    assert list(only(recorder).best(1)[0].args[1].keys) == ["a"]
    assert copyreg.dispatch_table == table
