"""What a report says, in each of its forms, and what the options of the audit change in it."""

import json
import pickle
import platform
import re
from html.parser import HTMLParser
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd import Function

import autograd_cookbook
from autograd_cookbook.auditing import AuditError, Finding, Report, audit, capability_names
from autograd_cookbook.auditing.checks import all_checks
from autograd_cookbook.auditing.report import MARKS
from autograd_cookbook.auditing.runner import name_of


def leaf(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(shape, dtype=torch.float64, generator=generator).to(dtype).requires_grad_()


class Twice(Function):
    """Its gradient lacks a factor of two."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output.clone()


class KeepsOnCtx(Function):
    """Right, with a tensor where it must not be: a warning."""

    @staticmethod
    def forward(ctx, x):
        ctx.root = x.exp()
        return ctx.root * 1

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.root


BROKEN = audit(Twice.apply, (leaf(2, 3),), only=["first_order", "vmap", "second_order", "tensors_on_ctx"])
RIGHT = audit(torch.sigmoid, (leaf(2, 3),), only=["first_order", "vmap"])


def made(*severities: str, **options: Any) -> Report:
    """A report with findings of some severities."""
    findings = tuple(
        Finding("vmap", s, f"{s} seen", "A cause.", "A fix.", "https://example.org/#vmap") for s in severities
    )
    return Report(**{"subject": "f", "findings": findings, "capabilities": {}, "saved_bytes": None,
                     "checks": ("runs", "vmap"), "seconds": {"runs": 0.25, "vmap": 1.0}} | options)  # fmt: skip


# --- verdict and headline ---


@pytest.mark.parametrize(
    ("severities", "ok", "counts"),
    [
        ((), True, ""),
        (("info",), True, ", 1 info"),
        (("info", "info"), True, ", 2 info"),
        (("warning",), False, ", 1 warning"),
        (("error",), False, ", 1 error"),
        (("error", "error", "warning", "info"), False, ", 2 errors, 1 warning, 1 info"),
        (("error", "warning", "warning"), False, ", 1 error, 2 warnings"),
    ],
)
def test_verdict_and_counts(severities: tuple[str, ...], ok: bool, counts: str) -> None:
    report = made(*severities)
    assert report.ok is ok
    assert report.headline == f"f: {'ok' if ok else 'NOT ok'} (2 checks in 1.2 s{counts})"
    assert str(report).startswith(report.headline)


def test_findings_of_some_severities() -> None:
    report = made("error", "warning", "info")
    assert [f.summary for f in report.of("error")] == ["error seen"]
    assert [f.summary for f in report.of("info", "error")] == ["error seen", "info seen"]


def test_errors_come_first() -> None:
    class Mixed(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x.clone())
            return x.exp()

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output * ctx.saved_tensors[0]

    report = audit(Mixed.apply, (leaf(2),), only=["saved_copies", "vmap", "first_order"])
    order = [f.severity for f in report.findings]
    assert order == sorted(order, key=list(MARKS).index)
    assert set(order) == set(MARKS)


@pytest.mark.parametrize(
    ("fn", "name"),
    [
        (Twice.apply, "Twice"),
        (torch.sigmoid, "sigmoid"),
        (nn.Linear(2, 2), "Linear"),
        (nn.Linear(2, 2).forward, "forward"),
        (lambda x: x, "<lambda>"),
        (F.softplus, "softplus"),
    ],
)
def test_the_name_of_what_was_audited(fn: Any, name: str) -> None:
    assert name_of(fn).rpartition(".")[2] == name


# --- str ---


def test_text_has_each_finding_with_all_its_parts() -> None:
    text = str(BROKEN)
    assert [f.check for f in BROKEN.of("error")] == ["first_order"]
    for found in BROKEN.findings:
        assert f"{MARKS[found.severity]} {found.severity}: {found.check}\n" in text
        joined = " ".join(text.split())
        link = f"see: {found.url}" if found.link else ""
        for part in (found.summary, f"cause: {found.cause}", f"fix: {found.fix}", link):
            assert " ".join(part.split()) in joined
    assert max(map(len, text.splitlines())) <= 120
    assert "capabilities (✓ yes, – no, ✗ wrong)\n  ✗ first_order" in text
    assert "saved for backward, beyond the inputs: 0 bytes on this sample" in text
    assert not re.search(r"[ \t]+$", text, flags=re.M)


def test_text_without_findings_is_short() -> None:
    assert re.fullmatch(
        r"sigmoid: ok \(3 checks in [\d.]+ s\)\n\ncapabilities .*\n  ✓ first_order\s+✓ vmap\n\nsaved .* 48 bytes .*",
        str(RIGHT),
    )


def test_long_words_such_as_addresses_are_not_cut() -> None:
    url = "https://example.org/" + "x" * 200
    found = Finding("vmap", "error", "a-b " * 60, "", "A fix.", url)
    assert url in str(found)
    assert "cause" not in str(found)


def test_notes_stand_at_the_end() -> None:
    assert str(made(notes=("first", "second"))).endswith("\n\nnote: first\n\nnote: second")


# --- dict and pickle ---


@pytest.mark.parametrize("report", [BROKEN, RIGHT, made("error", "info")])
def test_dict_is_json_and_complete(report: Report) -> None:
    data = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    assert data["ok"] is report.ok
    more = {name: data.pop(f"{name}_by_finding") for name in ("also", "source", "program")}
    beside = [dict(zip(more, values, strict=True)) for values in zip(*more.values(), strict=True)]
    found = [Finding(**f | b | {"also": tuple(b["also"])}) for f, b in zip(data["findings"], beside, strict=True)]
    assert found == list(report.findings)
    rebuilt = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items() if k not in ("ok", "findings")}
    assert Report(findings=report.findings, **rebuilt) == report


def test_a_report_can_be_pickled() -> None:
    assert pickle.loads(pickle.dumps(BROKEN)) == BROKEN


# --- HTML ---


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.open.append(tag)
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def parsed(html: str) -> _Tags:
    tags = _Tags()
    tags.feed(html)
    tags.close()
    assert tags.open == []
    return tags


@pytest.mark.parametrize("report", [BROKEN, RIGHT, made("error", notes=("a note",), capabilities={"vmap": "no"})])
def test_html_is_well_formed_and_holds_everything(report: Report) -> None:
    tags = parsed(report._repr_html_())
    assert report.headline in tags.text
    for found in report.findings:
        for part in (found.check, found.summary, found.cause, found.fix):
            assert part in tags.text
        assert (f'href="{found.url}"' in report._repr_html_()) == bool(found.link)
    for name in report.capabilities:
        assert name in tags.text
    assert ("table" in tags.seen) == bool(report.findings)


def test_html_is_escaped() -> None:
    """What the function says in an exception is text, and no part of the page."""

    def hostile(x: Tensor) -> Tensor:
        raise ValueError("<script>alert('1 & 2')</script>")

    report = audit(hostile, (leaf(2),), only=["vmap"])
    html = report._repr_html_()
    assert "<script>" not in html
    assert "&lt;script&gt;alert(&#x27;1 &amp; 2&#x27;)&lt;/script&gt;" in html
    assert "script" not in parsed(html).seen
    awkward = made("error", subject="<lambda>", notes=("<b>",), capabilities={"<i>": "yes"})
    assert parsed(awkward._repr_html_()).seen.isdisjoint({"lambda", "i"})
    assert "&lt;b&gt;" in awkward._repr_html_()


# --- exceptions ---


def test_raise_for_findings() -> None:
    for fine in (RIGHT, made("info")):
        assert fine.raise_for_findings() is None
    for bad in (BROKEN, made("warning"), made("info", "error")):
        with pytest.raises(AuditError) as caught:
            bad.raise_for_findings()
        assert caught.value.report is bad
        assert str(caught.value) == str(bad)
        assert isinstance(caught.value, AssertionError)


# --- capabilities ---


def test_capabilities_are_those_of_the_checks_that_ran() -> None:
    assert BROKEN.capabilities == {"first_order": "wrong", "vmap": "no"}
    assert "not measured, because the gradient is wrong: second_order" in BROKEN.notes
    assert RIGHT.capabilities == {"first_order": "yes", "vmap": "yes"}
    assert audit(torch.sin, (leaf(2),), only=["repeatable"]).capabilities == {}


def test_a_built_in_can_do_everything() -> None:
    report = audit(torch.sigmoid, (leaf(2, 3),))
    assert report.ok
    assert report.findings == ()
    assert report.checks == tuple(all_checks())
    assert set(report.seconds) == set(report.checks)
    assert report.capabilities == dict.fromkeys((n for n in capability_names() if n != "module_copies"), "yes")
    assert report.versions == {"torch": torch.__version__, "python": platform.python_version()}


def test_two_checks_of_one_capability_both_count() -> None:
    """Non-contiguous inputs are fine here, non-contiguous grad_outputs are not."""

    class Flat(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output.as_strided(grad_output.shape, (grad_output.shape[1], 1))

    report = audit(Flat.apply, (leaf(2, 3),), only=["input_layouts", "grad_output_layouts"])
    assert [f.check for f in report.findings] == ["grad_output_layouts"]
    assert report.capabilities == {"non_contiguous": "wrong"}


def test_module_copies_is_a_capability_of_modules_alone() -> None:
    x = leaf(2, 3)
    assert audit(nn.Linear(3, 2).double(), (x,), only=["module_copies"]).capabilities == {"module_copies": "yes"}
    assert audit(torch.sin, (x,), only=["module_copies"]).capabilities == {}


def test_what_does_not_run_has_no_capability() -> None:
    report = audit(lambda x: x.no_such_method(), (leaf(2),))
    assert [(f.check, f.severity) for f in report.findings] == [("runs", "error")]
    assert set(report.capabilities) >= set(capability_names()) - {"module_copies"}
    assert set(report.capabilities.values()) == {"no"}
    assert report.saved_bytes is None
    assert "the audit stopped there" in report.notes[-1]


# --- require ---


def test_require_turns_a_missing_capability_into_an_error() -> None:
    x = leaf(2, 3)
    only = ["vmap", "func_grad"]
    assert audit(KeepsOnCtx.apply, (x,), only=only).ok
    report = audit(KeepsOnCtx.apply, (x,), only=only, require=["vmap"])
    (required,) = report.of("error")
    assert required.check == "vmap"
    assert required.url == all_checks()["vmap"].url
    assert required.summary.startswith("vmap is required, and is 'no': ")
    assert "setup_context" in required.summary
    assert not report.ok


def test_require_what_is_there_changes_nothing() -> None:
    for require in ("vmap", ["vmap"], ("vmap", "func_grad")):
        assert audit(torch.sin, (leaf(2),), only=["vmap", "func_grad"], require=require).ok


def test_require_of_a_function_that_stops_at_once() -> None:
    report = audit(lambda x: x.detach(), (leaf(2),), require=["second_order"])
    assert {f.check for f in report.of("error")} == {"runs", "second_order"}


# --- low precision ---


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.complex64])
def test_a_sample_in_low_precision_is_promoted_and_that_is_said(dtype: torch.dtype) -> None:
    real = str(dtype.to_real() if dtype.is_complex else dtype).removeprefix("torch.")
    x = leaf(2, 3, dtype=dtype)
    seen: list[torch.dtype] = []

    def square(x: Tensor) -> Tensor:
        seen.append(x.dtype)
        return x * x

    report = audit(square, (x,), only=["first_order"], isolate=False)
    assert report.ok
    assert report.notes == (f"the sample was in {real}: it was promoted to float64, in a copy",)
    assert set(seen) == {torch.complex128 if dtype.is_complex else torch.float64}
    assert x.dtype is dtype
    assert report.saved_bytes == 0


def test_a_float64_sample_needs_no_note() -> None:
    assert RIGHT.notes == ()


def test_a_function_that_takes_float32_alone_is_audited_in_float32() -> None:
    class Single(Function):
        @staticmethod
        def forward(ctx, x):
            if x.dtype is not torch.float32:
                raise TypeError("expected float32")
            ctx.save_for_backward(x)
            return x**2

        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return 2 * x * grad_output

    class SingleWrong(Single):
        @staticmethod
        def backward(ctx, grad_output):
            (x,) = ctx.saved_tensors
            return 2.02 * x * grad_output

    x = leaf(2, 3, dtype=torch.float32)
    report = audit(Single.apply, (x,), skip=["compile"])
    assert report.ok, str(report)
    assert "expected float32: audited in float32, with wider tolerances" in report.notes[0]
    assert [f.check for f in audit(SingleWrong.apply, (x,), only=["first_order"]).of("error")] == ["first_order"]


# --- saved bytes ---


class ReluWithMask(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x > 0)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, grad_output):
        (mask,) = ctx.saved_tensors
        return grad_output * mask


@pytest.mark.parametrize(
    ("fn", "expected"),
    [
        pytest.param(torch.sin, 0, id="the input itself"),
        pytest.param(torch.sigmoid, 100 * 8, id="the output"),
        pytest.param(torch.exp, 100 * 8, id="the output, too"),
        pytest.param(lambda x: x.exp().sigmoid(), 200 * 8, id="two outputs"),
        pytest.param(ReluWithMask.apply, 100, id="a mask of one byte for each element"),
        pytest.param(KeepsOnCtx.apply, 100 * 8, id="what is hidden on ctx"),
        pytest.param(lambda x: x.sum(), 0, id="nothing"),
        pytest.param(nn.Linear(10, 3).double(), 0, id="parameters are there anyway"),
    ],
)
def test_saved_bytes(fn: Any, expected: int) -> None:
    assert audit(fn, (leaf(10, 10),), only=["runs"]).saved_bytes == expected


# --- surrogate and approximate gradients, references ---


class Spike(Function):
    """A step, whose backward is that of a sigmoid of slope 4."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return (x > 0).to(x.dtype)

    @staticmethod
    def backward(ctx, grad_output):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(4 * x)
        return 4 * s * (1 - s) * grad_output


FAST = [name for name in all_checks() if name != "compile"]


def test_a_surrogate_gradient_that_is_as_declared() -> None:
    report = audit(Spike.apply, (leaf(3, 4),), surrogate=lambda x: torch.sigmoid(4 * x), only=FAST)
    assert report.ok, str(report)


@pytest.mark.parametrize(
    "surrogate",
    [
        pytest.param(torch.sigmoid, id="another slope"),
        pytest.param(lambda x: torch.sigmoid(3.996 * x), id="almost the same slope"),
        pytest.param(lambda x: 0 * x, id="zero"),
    ],
)
def test_another_surrogate_than_the_declared_one(surrogate: Any) -> None:
    report = audit(Spike.apply, (leaf(3, 4),), surrogate=surrogate, gradient="surrogate", only=["first_order"])
    (found,) = report.of("error")
    assert "declared surrogate" in found.summary
    assert report.capabilities["first_order"] == "wrong"


def test_a_surrogate_gradient_that_is_not_declared() -> None:
    report = audit(Spike.apply, (leaf(3, 4),), only=["first_order", "linear_in_grad_output", "second_order"])
    assert [f.check for f in report.of("info")] == ["first_order"]
    assert report.capabilities["second_order"] == "yes"  # its slope is computed from the input that is saved
    assert report.findings[0].summary.startswith("looks like a surrogate: declare it")
    assert "surrogate=" in report.findings[0].fix
    assert report.ok  # the numbers are not judged


class Sketched(Function):
    """The gradient of the weight comes from a random half of the rows; without bias if the factor is 2."""

    @staticmethod
    def forward(ctx, x, weight, factor):
        ctx.save_for_backward(x, weight)
        ctx.factor = factor
        return x @ weight

    @staticmethod
    def backward(ctx, grad_output):
        x, weight = ctx.saved_tensors
        kept = torch.rand(x.shape[0]) < 0.5
        dx = grad_output @ weight.mT if ctx.needs_input_grad[0] else None
        return dx, ctx.factor * x[kept].mT @ grad_output[kept] if ctx.needs_input_grad[1] else None, None


def test_an_approximate_gradient_without_bias() -> None:
    arguments = (leaf(8, 3), leaf(3, 2), 2.0)
    report = audit(Sketched.apply, arguments, gradient="approximate", only=FAST)
    assert report.ok, str(report)
    (measured,) = (note for note in report.notes if note.startswith("approximate gradient over"))
    numbers = re.search(
        r"relative error of a single gradient ([\d.]+), bias ([\d.]+) .*similarity of the mean ([\d.]+)", measured
    )
    single, bias, cosine = map(float, numbers.groups())
    assert 0.1 < single < 2
    assert bias < 0.2 < single
    assert cosine > 0.98


def test_a_biased_approximate_gradient() -> None:
    arguments = (leaf(8, 3), leaf(3, 2), 1.0)
    report = audit(Sketched.apply, arguments, gradient="approximate", only=["first_order"])
    (found,) = report.of("error")
    assert "the tolerance is 0.05" in found.summary
    assert "biased" in found.cause
    lenient = audit(Sketched.apply, arguments, gradient="approximate", tolerance=0.6, only=["first_order"])
    assert lenient.ok, str(lenient)


def test_a_tolerance_decides_where_nothing_is_random() -> None:
    class Off(Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, grad_output):
            return 1.02 * grad_output

    for tolerance, ok in ((0.01, False), (0.019, False), (0.021, True), (None, True)):
        options = {"gradient": "approximate", "tolerance": tolerance, "only": ["first_order"]}
        assert audit(Off.apply, (leaf(3),), **options).ok is ok


def test_reference() -> None:
    x = leaf(3, 4)
    assert audit(torch.sigmoid, (x,), reference=lambda x: 1 / (1 + (-x).exp()), only=["reference"]).ok
    (value,) = audit(torch.sigmoid, (x,), reference=torch.tanh, only=["reference"]).of("error")
    assert value.summary.startswith("output 0 is ")
    assert "which the reference gives" in value.summary
    (gradient,) = audit(Spike.apply, (x,), reference=lambda x: (x > 0) + 0 * x, only=["reference"]).of("error")
    assert gradient.summary.startswith("the gradient of input 0 is ")


def test_reference_at_infinity() -> None:
    naive = audit(lambda x: x / (1 + x.abs()), (leaf(3),), reference=F.softsign, only=["reference_points"])
    assert naive.ok
    report = audit(lambda x: x.exp().log1p(), (leaf(3),), reference=F.softplus, only=["reference_points"])
    (found,) = report.of("error")
    assert "which the reference gives" in found.summary


# --- the seed, and the name that is called ---


def test_the_seed_decides_what_random_functions_draw() -> None:
    def first(seed: int) -> list[float]:
        drawn: list[float] = []

        def noisy(x: Tensor) -> Tensor:
            drawn.append(float(torch.rand(())))
            return x * drawn[-1]

        audit(noisy, (leaf(2),), only=["runs"], seed=seed, isolate=False)
        return drawn

    assert first(1) == first(1)
    assert first(1)[0] != first(2)[0]


def test_the_package_has_the_function_and_says_what_it_has_not() -> None:
    assert autograd_cookbook.audit is audit
    with pytest.raises(AttributeError, match="'autograd_cookbook' has no attribute 'adit'"):
        _ = autograd_cookbook.adit


class KeepsOutput(Function):
    """Wrong after a write to its output, because of what it keeps on ctx."""

    @staticmethod
    def forward(ctx, x):
        ctx.output = x.exp()
        return ctx.output

    @staticmethod
    def backward(ctx, grad_output):
        return grad_output * ctx.output


def test_findings_with_one_cause_are_one() -> None:
    report = audit(KeepsOutput.apply, (leaf(2, 3),), only=["later_writes", "in_place_consumer", "tensors_on_ctx"])
    (found,) = report.findings
    assert (found.check, found.severity) == ("later_writes", "error")
    assert found.also == ("in_place_consumer", "tensors_on_ctx")
    assert "KeepsOutput keeps the output as ctx.output" in found.cause
    assert "ctx.output = x.exp()" in found.source


def test_a_matter_of_taste_alone_is_info() -> None:
    report = audit(KeepsOnCtx.apply, (leaf(2, 3),), only=["later_writes", "tensors_on_ctx"])
    assert [(f.check, f.severity) for f in report.findings] == [("tensors_on_ctx", "info")]
    assert report.ok


def test_the_report_says_what_ok_does_not_cover() -> None:
    class Square(Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output * ctx.saved_tensors[0]

    report = audit(Square.apply, (leaf(2, 3),), only=["first_order", "complex128"])
    assert report.ok
    assert report.capabilities["complex128"] == "wrong"
    head = " ".join(str(report).split("\n\n")[0].split())
    assert "ok means that there is no error and no warning. It does not cover complex128:" in head
    assert "It does not cover complex128" in report._repr_html_()
    for other in (RIGHT, BROKEN):  # nothing is wrong in the one, and the other is not ok
        assert "does not cover" not in str(other) + other._repr_html_()
    two = made(capabilities={"vmap": "yes", "complex128": "wrong", "forward_mode": "wrong"})
    assert "It does not cover complex128 and forward_mode:" in " ".join(str(two).split())
