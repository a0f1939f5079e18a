"""The error index: each message is one that torch says, and is found as a reader pastes it."""

import contextlib
import copy
import functools
import gc
import importlib
import io
import json
import lzma
import math
import random
import re
import string
import subprocess
import sys
import textwrap
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from docs._ext import digests, results, versions
from docs._ext.pages import PLACES
from docs.errors import programs as errors
from docs.errors import wordings
from docs.errors.build import IN_WORDS, RAISED, compiled, named_in, names_in
from docs.errors.programs import GROUPS, Program
from docs.errors.programs.__main__ import changes, raised_by
from docs.errors.questions import questions
from torch.nn import functional as F

from autograd_cookbook.auditing.checks import all_checks
from autograd_cookbook.cli import main
from autograd_cookbook.errors import INDEX, Entry, Explanation, entries, explain, matcher, paste, storing
from autograd_cookbook.errors import PROGRAMS as SHOWN
from autograd_cookbook.errors.cli import WIDTH, as_json, wrapped
from autograd_cookbook.errors.matching import wordings as word_by_word
from autograd_cookbook.recipes.data_parallel import run_ranks
from tests.support import since

# Each program runs once, for all tests of one process.
pytestmark = pytest.mark.xdist_group("errors")
PROGRAMS = errors.load()
DOCS = Path(__file__).parents[1] / "docs"
each_program = pytest.mark.parametrize("program", [pytest.param(p, id=name) for name, p in PROGRAMS.items()])


# What is raised on this release of torch as on the pinned one, or in other words that the index has.
COMMON = [name for name in PROGRAMS if name not in versions.stored().get(versions.running(), {}).get("messages", {})]


@cache
def index() -> dict[str, Entry]:
    return {entry.name: entry for entry in entries()}


@cache
def traceback_of(name: str) -> str:
    program = PROGRAMS[name]
    raised = errors.run(program.source, program.warning)
    return raised.traceback if raised else ""


def pasted(name: str) -> str:
    """The message of an entry below a frame of a reader's own."""
    entry = index()[name]
    frame = 'Traceback (most recent call last):\n  File "train.py", line 9, in <module>\n    step(model)\n'
    return f"{frame}{entry.kind}: {entry.message}\n"


# --- what torch says ---


slow = pytest.mark.slow("docs/errors", "src/autograd_cookbook/errors")


def test_the_index_was_written_from_the_programs_as_they_are() -> None:
    """Nothing of a program has changed since it was last run, and with this torch; the next tests run it again."""
    stored = results.read(results.RESULTS / "messages.json")
    changed = [name for name, p in PROGRAMS.items() if stored.get(name) != digests.program(p.source, p.warning)]
    assert not changed, f"nox -s refresh -- {' '.join(changed)} runs them"


@slow
@each_program
def test_torch_says_what_the_index_says(program: Program) -> None:
    assert program.name in index(), f"nox -s refresh -- {program.name} writes it down"
    entry, now, release = index()[program.name], raised_by(program), versions.running()
    if release == entry.torch:
        found = list(changes({program.name: vars(entry)}, {program.name: now}))
        assert not found, "\n".join([*found, f"nox -s refresh -- {program.name} writes it down"])
        return
    said = now and (now["kind"], now["message"])
    if program.name in COMMON:
        known = bool(said and wordings.known(entry, release, said))
    else:  # this release says something else, or nothing
        other = versions.differences("messages", program.name)
        known = wordings.alike(said, other) if said and other else said == other
    assert known, f"torch {release} says {said}: nox -s versions -- {release} writes it down"


def test_a_message_names_no_file_of_the_machine_that_ran_it() -> None:
    """Another machine raises the same with other files, and the build of the site there would fail."""
    place = re.compile(r"(?<![\w.:/\u2026])/(?:bin|home|lib|opt|root|tmp|usr|var)/\S*")
    named = {name: set(place.findall(index()[name].message)) for name in PROGRAMS}
    assert not {name: files for name, files in named.items() if any(f not in PROGRAMS[name].source for f in files)}


@slow
@pytest.mark.parametrize("program", [pytest.param(p, id=name) for name, p in PROGRAMS.items() if p.fixed])
def test_the_fixed_program_ends_well(program: Program) -> None:
    """The build of the site runs all of them as well, and fails at one that raises."""
    left = errors.run(program.fixed_source, program.warning)
    assert left is None, f"the fixed version of {program.name} raises:\n{left.traceback}"


def test_where_there_is_no_fixed_program_the_fix_says_why() -> None:
    silent = [name for name, program in PROGRAMS.items() if not program.fixed and "no " not in program.fix.lower()]
    assert not silent


def test_an_entry_reads_well() -> None:
    for entry in (*PROGRAMS.values(), *entries()):
        assert not entry.title.endswith("."), entry.title
        assert len(entry.title) <= 90, entry.title
        for text in (entry.cause, entry.fix):
            assert text.endswith("."), (entry.name, text)
            assert text.count("``") % 2 == 0, (entry.name, text)


def test_a_program_is_short() -> None:
    """What raises an error can be said in 40 lines."""
    lines = {name: len(program.source.splitlines()) for name, program in PROGRAMS.items()}
    assert not {name: count for name, count in lines.items() if count > 40}


def test_the_index_is_that_of_the_programs() -> None:
    assert [entry.name for entry in entries() if entry.name in PROGRAMS] == list(PROGRAMS)
    assert len(PROGRAMS) >= 60
    titles = [entry.title for entry in entries()]
    assert len(set(titles)) == len(titles), "two entries have the same title"
    assert {entry.group for entry in entries()} <= set(GROUPS)


def test_what_an_entry_points_to_is_there() -> None:
    pages = {str(path.relative_to(DOCS).with_suffix("")) for path in DOCS.rglob("*.md")}
    known = {*pages, *(f"cookbook/{place}" for place in PLACES.values()), *(f"check:{name}" for name in all_checks())}
    shown = [(program.name, program.see) for program in PROGRAMS.values()]
    shown += [(entry.name, entry.see) for entry in entries()]
    lost = {name: targets for name, see in shown if (targets := [target for target in see if target not in known])}
    assert not lost, f"no such page or check: {lost}"


def test_the_index_is_compiled_of_its_sources() -> None:
    raised = [{field: vars(index()[name])[field] for field in RAISED} for name in PROGRAMS]
    now, stored = compiled(raised), storing.read(INDEX)
    if versions.running() != digests.torch():  # each release has nodes and derivatives of its own
        now |= {part: stored[part] for part in ("nodes", "derivatives")}
    assert now == stored, "python -m docs.errors.build"


def test_an_entry_without_a_program_says_where_it_was_seen() -> None:
    without = [entry for entry in entries() if entry.name not in PROGRAMS]
    assert not [entry.name for entry in without if not entry.source.startswith("https://")]


GRADIENT = (
    "Function {}Backward{} returned an invalid gradient at index 0 - got [2] but expected shape compatible with [3]"
)
CHANGED = (
    "one of the variables needed for gradient computation has been modified by an inplace operation: "
    "[torch.cuda.FloatTensor [20, 7]], which is output 0 of {}, is at version 3; expected version 2 instead."
)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (GRADIENT.format("Mm", ""), "gradient_of_builtin_of_other_shape"),
        (GRADIENT.format("Mul", "0"), "gradient_of_builtin_of_other_shape"),
        (GRADIENT.format("ScaleIt", ""), "gradient_of_other_shape"),
        ("derivative for aten::grid_sampler_2d_backward is not implemented", "grid_sample_twice"),
        ("derivative for aten::_scaled_dot_product_efficient_attention_backward is not implemented", "attention_twice"),
        ("derivative for aten::frobnicate is not implemented", "derivative_missing"),
        ("Batching rule not implemented for aten::frobnicate; the fallback path doesn't work", "no_batching_rule"),
        ("Function 'MulBackward0' returned nan values in its 0th output.", "nan_in_product"),
        ("Function 'DivBackward0' returned nan values in its 1th output.", "nan_in_division"),
        ("AttributeError: 'tuple' object has no attribute 'backward'", "loss_is_tuple"),
        ("AttributeError: 'CausalLMOutput' object has no attribute 'backward'", "loss_is_tuple"),
        ("AttributeError: 'int' object has no attribute 'backward'", "loss_is_float"),
        (CHANGED.format("TBackward"), "stepped_before_backward"),
    ],
)
def test_variables_and_frames_decide_between_causes_of_one_message(text: str, name: str) -> None:
    found = explain(text)
    assert (found.known, names(found)) == ("yes", [name])


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (CHANGED.format("TanhBackward0"), "result_changed"),
        ("a leaf Variable that requires grad is being used in an in-place operation.", "leaf_changed"),
    ],
)
def test_where_an_entry_asks_about_other_causes_it_is_no_certain_one(text: str, name: str) -> None:
    """One that the text shows is certain again."""
    found = explain(text)
    assert (found.known, names(found)) == ("maybe", [name])
    assert any(case.title != found.entries[0].title for case in found.entries[0].others)
    shown = explain(f"dist.broadcast(p, 0)\nRuntimeError: {index()['leaf_changed'].message}")
    assert (shown.known, shown.entries[0].special) == ("yes", True)


def test_a_traceback_rules_out_a_cause_that_is_known_by_its_places() -> None:
    assert explain(index()["hook_on_constant"].message).known == "maybe"
    assert explain(pasted("hook_on_constant")).known == "yes"


def test_where_nothing_decides_the_reader_is_asked() -> None:
    text = "element 0 of tensors does not require grad and does not have a grad_fn"
    found = explain(text)
    assert found.known == "maybe"
    assert names(found) == ["nothing_requires_grad", "frozen_under_checkpoint", "grad_mode_left_off"]
    assert all(entry.tell for entry in found.entries)
    assert names(explain(f"Training Llama with LoRA and gradient checkpointing: {text}")) == ["frozen_under_checkpoint"]


def test_entries_with_one_message_are_told_apart() -> None:
    """What the reader is asked where the text does not decide."""
    named: dict[str, list[Entry]] = {}
    for stored, entry in zip(matcher().entries, entries(), strict=True):
        for lead, *_ in stored["wordings"][:1]:
            named.setdefault(lead, []).append(entry)
    for wording, same in named.items():
        told = [entry.tell for entry in same if entry.name not in PROGRAMS]
        assert all(told) or not same[1:], (
            f"which of {[entry.name for entry in same]} is it, if the message is {wording}?"
        )


# --- finding ---


def another(text: str, names: set[str], chance: random.Random) -> str:
    """The same text as somebody else has it: other names, numbers, types and devices."""
    for name in sorted(names, key=len, reverse=True):
        letters = "".join(chance.choices(string.ascii_lowercase, k=chance.randint(3, 9)))
        text = re.sub(re.escape(name), letters.capitalize() if name[0].isupper() else letters, text)
    text = re.sub(r"\b(cpu|cuda)\b", lambda _: chance.choice(["cpu", "cuda:1", "mps"]), text)
    text = re.sub(r"\bfloat(32|64)\b", lambda _: chance.choice(["float16", "bfloat16", "float64"]), text)
    text = re.sub(r"\b(Float|Double)(?=Tensor|\b)", lambda _: chance.choice(["Half", "Float", "Double"]), text)
    return re.sub(r"(?<![\w.])\d+(\.\d+)?", lambda _: str(chance.randint(0, 300)), text)


def varied(seed: int) -> list[tuple[str, str]]:
    chance = random.Random(seed)
    return [(name, another(traceback_of(name), names_in(PROGRAMS[name].source), chance)) for name in COMMON]


@slow
@pytest.mark.parametrize("seed", range(3))
def test_a_traceback_with_other_names_and_numbers_finds_its_entry_first(seed: int) -> None:
    found = {name: explain(text) for name, text in varied(seed)}
    missed = {name: names(f) for name, f in found.items() if not ({*names(f)[:1]} & family(name)) or f.known == "no"}
    assert not missed, missed
    assert [f.known for f in found.values()].count("yes") >= 0.9 * len(found)


@cache
def family(name: str) -> frozenset[str]:
    """The entries with the same message: other causes of it, which numbers alone can tell apart."""
    said = {stored["name"]: {(lead, tail) for lead, tail, _ in stored["wordings"]} for stored in matcher().entries}
    return frozenset({name} | {other for other, rows in said.items() if rows & said[name]})


def expect_first(text: str, name: str, advice: str) -> None:
    """That this entry surely explains the text, and begins with this advice."""
    found = explain(text)
    assert (found.known, found.entries[0].name) == ("yes", name)
    assert advice in found.entries[0].advice[0]


def names(found: Explanation) -> list[str]:
    return [entry.name for entry in found.entries]


# Entries that follow each other are of one page, so every sixth one stands for all of them by day.
EVERY = pytest.mark.parametrize("every", [pytest.param(6, id="some"), pytest.param(1, id="all", marks=slow)])


@EVERY
def test_the_first_line_alone_is_enough(every: int) -> None:
    """As in the title of an issue; where several messages begin with it, theirs is among those asked about."""
    # What any program says is known by what stands around it.
    around = {s["name"] for s in matcher().entries if re.search("(text|frames|place|raiser): ", str(s.get("needs")))}
    said = [entry for entry in index().values() if entry.name not in around][::every]
    lines = {entry.name: f"{entry.kind}: {entry.message.strip().splitlines()[0]}" for entry in said}
    found = {name: explain(line) for name, line in lines.items()}
    missed = {name: (f.known, names(f)) for name, f in found.items() if not ({*names(f)} & family(name))}
    assert len(missed) <= 0.02 * len(found), missed


@EVERY
def test_the_message_alone_is_enough(every: int) -> None:
    # What any program says is known by what stands around it.
    bare = [s["name"] for s in matcher().entries if not re.search("(text|frames|place|raiser): ", str(s.get("needs")))]
    found = {name: explain(index()[name].message) for name in bare[::every]}
    missed = {name: (f.known, names(f)) for name, f in found.items() if not ({*names(f)[:1]} & family(name))}
    # A type without which the message says nothing, as "aten.nonzero.default".
    assert len(missed) <= 0.02 * len(found), missed


def test_what_other_releases_and_other_operations_say_is_enough() -> None:
    """Each wording that an entry has besides its own message, as a reader has it."""
    bare = [s["name"] for s in matcher().entries if not re.search("(text|frames|place|raiser): ", str(s.get("needs")))]
    said = [
        (name, former.kind or index()[name].kind, former.message) for name in bare for former in index()[name].former
    ]
    found = [(name, message, explain(f"{kind}: {message}")) for name, kind, message in said if kind != IN_WORDS]
    missed = [row for row in found if row[2].known == "no" or not ({*names(row[2])[:1]} & family(row[0]))]
    assert len(missed) <= 0.02 * len(found), missed


MESSAGE = "RuntimeError: grad can be implicitly created only for scalar outputs"


PASTES = dict(
    paste.split("\n", 1)
    for paste in re.split(r"^## ", Path(__file__).with_name("error_pastes.txt").read_text(), flags=re.MULTILINE)[1:]
)


@pytest.mark.parametrize("text", PASTES.values(), ids=PASTES)
def test_what_stands_around_a_message_is_no_matter(text: str) -> None:
    found = explain(text.replace("<ESC>", "\x1b"))
    assert (found.known, names(found)) == ("yes", ["loss_not_scalar"])


def test_the_last_exception_counts() -> None:
    first, second = list(PROGRAMS)[:2]
    text = f"{pasted(first)}\nDuring handling of the above exception, another occurred:\n\n{pasted(second)}"
    assert explain(text).entries[0].name == second


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ModuleNotFoundError: No module named 'numpy'", "installation"),
        ("KeyError: 'weight'", "nothing in it is about gradients"),
        (
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a capacity of 10 GiB",
            "memory",
        ),
        (
            "RuntimeError: Error(s) in loading state_dict for Net: Missing key(s) in state_dict: 'fc.weight'.",
            "checkpoint",
        ),
        ("ValueError: Expected input batch_size (32) to match target batch_size (64).", "shapes"),
        ("mat1 and mat2 shapes cannot be multiplied (512x1024 and 4096x5120)", "shapes"),
        ("IndexError: list index out of range", "nothing in it is about gradients"),
        ("ImportError: cannot import name 'soft_unicode' from 'markupsafe'", "installation"),
        ("AttributeError: 'NoneType' object has no attribute 'shape'", ""),
        ("hello world", ""),
    ],
)
def test_what_is_not_about_gradients_is_said_to_be_so(text: str, said: str) -> None:
    found = explain(text)
    assert found.known == "no", f"taken for {found.entries[0]}"
    assert said in found.general
    assert found.general


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "function CompiledFunctionBackward returned an incorrect number of gradients (expected 5, got 4)",
            "torch.compile",
        ),
        ("RuntimeError: " + GRADIENT.format("Broadcast", ""), "DataParallel"),
        (
            '  File "/env/site-packages/somelib/ops.py", line 7, in backward\n    x, w = ctx.saved_tensors\n'
            "ValueError: not enough values to unpack (expected 2, got 1)",
            "installed library",
        ),
        (
            "RuntimeError: function WarpBackward returned an incorrect number of gradients (expected 5, got 4) [mps:0]",
            "on the CPU",
        ),
        ("RuntimeError: Function 'torch::autograd::CppNode<warp::Warp>' returned nan values in its 0th output.", "C++"),
    ],
)
def test_what_is_not_the_readers_own_is_said_to_be_so(text: str, said: str) -> None:
    found = explain(text)
    assert found.known != "yes"
    assert said in found.note


def test_a_function_of_the_readers_is_no_librarys() -> None:
    text = (
        '  File "/home/me/train.py", line 3, in <module>\n    trainer.fit(model)\n'
        '  File "/env/site-packages/trainer/loop.py", line 9, in backward\n    loss.backward()\n'
        '  File "/env/site-packages/torch/_tensor.py", line 5, in backward\n    torch.autograd.backward(self)\n'
        "RuntimeError: function WarpBackward returned an incorrect number of gradients (expected 5, got 4)"
    )
    found = explain(text)
    assert found.known == "yes"
    assert found.note.startswith("If you did not write ``WarpBackward``")
    own = explain(f"class Warp(torch.autograd.Function):\n    ...\n\n{text}")
    assert (own.known, own.note) == ("yes", "")


def test_another_framework_is_out_of_scope() -> None:
    text = '  File "/env/site-packages/keras/optimizers/base.py", line 5, in apply\n'
    text += "ValueError: No gradients provided for any variable"
    found = explain(text)
    assert found.known == "no"
    assert "another framework" in found.general
    assert (
        "another framework"
        not in explain(text + "\n" + '  File "/env/site-packages/torch/_tensor.py", line 5, in backward\n').general
    )


def test_an_error_in_the_readers_own_backward_is_not_out_of_scope() -> None:
    text = (
        'Traceback (most recent call last):\n  File "scale.py", line 20, in backward\n    return grad * x[:, None]\n'
        "RuntimeError: The size of tensor a (4) must match the size of tensor b (512) at non-singleton dimension 1"
    )
    found = explain(text)
    assert names(found) == ["backward_shapes_differ"]
    assert "backward" in found.general
    assert found.place is not None
    assert (found.place.file, found.place.line) == ("scale.py", 20)


def test_a_part_of_a_message_of_python_itself_is_not_taken_for_one() -> None:
    """Any program says such things; only what stands around it shows that a Function did."""
    bare = "ValueError: too many values to unpack (expected 1)"
    frame = 'File "{}", line 3, in {}\n    {}\n'
    other = explain(f"{frame.format('read.py', 'load', 'name, = row')}{bare}")
    own = explain(f"{frame.format('scale.py', 'setup_context', 'x, = inputs')}{bare}")
    assert other.known == "no"
    assert own.known == "yes"


FRAMES = """Traceback (most recent call last):
  File "train.py", line 12, in <module>
    {call}
  File "env/site-packages/torch/{library}.py", line 522, in {inner}
    {code}
"""
ENGINE = FRAMES.format(
    call="loss.backward()", library="autograd/graph", inner="_engine_run_backward", code="return engine.run_backward("
)
MODULE = FRAMES.format(
    call="out = model(batch)", library="nn/modules/module", inner="_call_impl", code="return forward_call(*args)"
)
IN_FORWARD = f'{MODULE}  File "net.py", line 30, in forward\n    y = self.mix(x, mask)\n'


@pytest.mark.parametrize(
    "message",
    [
        "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
        "RuntimeError: The size of tensor a (3) must match the size of tensor b (5) at non-singleton dimension 1",
        "KeyError: 'scale'",
    ],
)
def test_what_backward_raised_is_not_called_an_error_of_the_forward(message: str) -> None:
    assert "nothing" in explain(IN_FORWARD + message).general
    assert "nothing" not in explain(ENGINE + message).general
    warned = "UserWarning: Error detected in MulBackward0. Traceback of forward call that caused the error:\n"
    found = explain(f"{warned}{FRAMES}{message}")
    assert "nothing" not in found.general
    assert (found.known, names(found)) == ("maybe", ["anomaly_traceback"])


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ("ValueError: too many values to unpack (expected 2)", "inputs_half_unpacked"),
        ("TypeError: unsupported operand type(s) for *: 'Tensor' and 'NoneType'", "none_multiplied"),
        ("{}", "grad_output_viewed"),
    ],
)
def test_a_forward_of_a_module_does_not_show_that_a_function_raised(message: str, name: str) -> None:
    message = message.format(f"{index()[name].kind}: {index()[name].message}")
    assert explain(IN_FORWARD + message).known == "no"
    own = f'{ENGINE}  File "scale.py", line 20, in backward\n    y = grad.view(-1)\n{message}'
    assert {*names(explain(own))} & family(name)


def test_a_hint_in_the_text_orders_the_causes_and_does_not_decide() -> None:
    text = "RuntimeError: expected scalar type Half but found Float"
    found = explain(f"The model has a LoRA. {text}")
    assert found.known == "maybe"
    assert names(found)[0] == "adapter_without_autocast"
    assert {*names(found)[1:]} <= family("adapter_without_autocast")


def test_a_word_that_is_not_in_the_paste_does_not_exclude_a_cause() -> None:
    """Most readers paste the message alone; where one says more, that cause comes first."""
    text = (
        "RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation: "
    )
    text += "[torch.cuda.FloatTensor [64]] is at version 9; expected version 8 instead."
    assert "ddp_buffers_broadcast" in names(explain(text))
    assert names(explain(f"In distributed training: {text}"))[0] == "ddp_buffers_broadcast"


def test_an_assertion_without_a_message_says_what_it_asserts() -> None:
    text = f'{ENGINE}  File "op.py", line 9, in backward\n    assert grad_output.is_contiguous()\nAssertionError'
    assert names(explain(text)) == ["extension_not_contiguous"]


def test_an_assertion_within_a_chain_is_that_of_its_own_traceback() -> None:
    stage = '  File "/env/torch/distributed/pipelining/_backward.py", line {}, in {}\n    {}\n'
    first = stage.format(66, "stage_backward", "extract_tensors_with_grads(stage_output, output_grads)")
    first += stage.format(52, "extract_tensors_with_grads", "assert len(output_val) == len(grad_val)")
    then = "The above exception was the direct cause of this one:\n\nTraceback (most recent call last):\n"
    last = stage.format(341, "step", "self._step_microbatches(args_split)")
    found = explain(f"Traceback (most recent call last):\n{first}AssertionError\n\n{then}{last}")
    assert (found.known, names(found)) == ("yes", ["stage_of_more_outputs"])


def test_the_libraries_in_a_traceback_of_c_are_no_message() -> None:
    frame = "frame #1: c10d::Reducer::mark_variable_ready(c10d::Reducer) + 0x4cd (0x7f79 in /env/libc10.so)"
    assert "extension does not fit" not in explain(frame).general
    assert "extension does not fit" in explain("OSError: libc10.so: cannot open shared object file").general


def test_lines_that_a_terminal_has_broken_are_read_as_one() -> None:
    text = f"RuntimeError: {CHANGED.format('TanhBackward0')}"
    for width in (80, 96):
        broken = "\n".join(text[i : i + width] for i in range(0, len(text), width))
        assert explain(broken).message == text


def test_what_another_library_raised_is_near_no_message_that_is_a_bare_symbol() -> None:
    found = explain("RuntimeError: the scheduler has no more work for this node")
    assert (found.known, names(found)) == ("no", [])


@pytest.mark.parametrize("text", ["", "  \n ", "123: 45"])
def test_bad_input_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected"):
        explain(text)


# --- what decides, and what is said where no entry fits ---


@pytest.mark.parametrize(
    ("text", "said"),
    [
        # What PyTorch adds to any failed check is no part of a message.
        (
            '0 < left INTERNAL ASSERT FAILED at "../torch/csrc/x/y.cpp":7, please report a bug to PyTorch.',
            "inside PyTorch",
        ),
        ("torch_xla/csrc/device.cpp:41 : Check failed: it != map.end()", "XLA"),
        ("Unsupported: something that the compiler does not know", "torch.compile"),
        ('left == right INTERNAL ASSERT FAILED at "../c10d/reducer.cpp":9, please report a bug to PyTorch.', "ranks"),
    ],
)
def test_what_is_said_everywhere_tells_nothing(text: str, said: str) -> None:
    found = explain(f"RuntimeError: {text}" if "Unsupported" not in text else text)
    assert (found.known, names(found)) == ("no", [])
    assert said in found.general


@pytest.mark.parametrize(
    ("text", "names_it"),
    [
        ("RuntimeError: frobnicate does not support tensors of this layout", "does not exist in this release"),
        ("RuntimeError: the desired dtype Double is not the dtype Float of the output of aten::bar", "``aten::bar``"),
        (
            "RuntimeError: x and y differ in shape, torch.Size([3, 4]) and torch.Size([4, 3]) must match",
            "``torch.Size([3, 4])``",
        ),
        ("RuntimeError: a and b are not on the same device: cuda:0, cuda:1", "``cuda:1``"),
        ("torch._C._LinAlgError: linalg.qr: did not converge", "isfinite"),
        ("RuntimeError: CUDA error: device-side assert triggered", "number of classes"),
        ("RuntimeError: stack expects a non-empty TensorList", "no parameter has a gradient"),
        ("AttributeError: 'dict' object has no attribute 'grad'", "param_groups"),
        ("RuntimeError: frobnicate_backward has no deterministic way to add", "warn_only=True"),
        ("[E ProcessGroupNCCL.cpp:1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7)", "rank"),
        ("ValueError: Default process group has no frobnicator", "init_process_group"),
        ("RuntimeError: frobnicate: storage of size 0 was read", "unshard"),
        ("RuntimeError: frobnicate needs a channels_last tensor", "contiguous()"),
        ("Two runs with one seed differ between two GPUs", "use_deterministic_algorithms"),
        ("UnboundLocalError: local variable 'grads' referenced before assignment", "earlier error"),
    ],
)
def test_general_advice_fits_the_kind_of_message_and_names_what_it_names(text: str, names_it: str) -> None:
    assert names_it in explain(text).general


def test_a_text_that_ends_before_its_message_is_said_to_do_so() -> None:
    for text in (ENGINE, f"{ENGINE}******** loss is 0.25\ntorch.Size([3, 4])\n"):
        found = explain(text)
        assert (found.known, found.message) == ("no", "")
        assert "no error message" in found.general
        assert "raised" not in found.general.partition("From what")[2], "nothing shows that anything was raised"
    told = explain("On the second device my gradients are too large, on the CPU they are right.")
    assert "has no error message" in told.general
    assert "engine raised" not in told.general


def test_a_line_of_output_or_source_is_not_taken_for_the_message() -> None:
    found = explain(f"step 3\ny = model(x)\nloss: 0.25\nqueue::at: index does not fit the devices\n{ENGINE}")
    assert found.message == "queue::at: index does not fit the devices"


def test_an_unrelated_later_exception_is_named_next_to_the_known_one() -> None:
    first = f"{ENGINE}RuntimeError: grad can be implicitly created only for scalar outputs\n"
    text = f"{first}\nThen I tried to sum it.\n{MODULE}RuntimeError: frobnicate has no weights"
    found = explain(text)
    assert (found.known, names(found)[0]) == ("maybe", "loss_not_scalar")
    assert "frobnicate has no weights" in found.note
    chained = text.replace("Then I tried to sum it.", "During handling of the above exception, another occurred:")
    assert "frobnicate" not in explain(chained).note


def test_a_hook_of_a_module_gets_the_rules_of_modules() -> None:
    text = "RuntimeError: hook 'scale_it' has changed the size of value"
    module = explain(f"m.register_full_backward_hook(scale_it)  # (module, grad_input, grad_output)\n\n{text}")
    assert names(module)[0] == "module_hook_gradient"
    assert {"module_hook_gradient", "hook_returned_norm"} <= {*names(explain(text))}


def test_who_uses_a_function_is_told_what_a_user_can_do() -> None:
    text = "TypeError: save_for_backward can only save variables, but argument 2 is of type list"
    assert "not in your code" in explain(text).note
    frame = 'File "scale.py", line 3, in setup_context\n    ctx.save_for_backward(x, y, z)\n'
    assert explain(f"{frame}{text}").note == ""
    assert (
        "operation of PyTorch"
        in explain(
            GRADIENT.format("Mul", "0").replace(
                "got [2] but expected shape compatible with [3]", "expected device cpu but got xpu:0"
            )
        ).note
    )


def test_advice_is_whole_sentences() -> None:
    assert not [entry.name for entry in entries() if not entry.advice[0].endswith((".", ":", "?", "`", ")", "…"))]


# --- the command ---


def test_the_command_reads_a_traceback_and_needs_no_torch() -> None:
    name = next(iter(PROGRAMS))
    code = (
        "import sys; from autograd_cookbook.cli import main; status = main(['explain']); "
        "assert 'torch' not in sys.modules; sys.exit(status)"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], input=pasted(name), text=True, capture_output=True, encoding="utf-8"
    )
    assert run.returncode == 0, run.stderr
    entry = index()[name]
    assert run.stdout.startswith(f"This is it: {entry.title}")
    for said in (entry.advice[0], entry.cause, PROGRAMS[name].source, PROGRAMS[name].fixed_source):
        assert squeezed(said) in squeezed(run.stdout)


def squeezed(text: str) -> str:
    return " ".join(text.replace("``", "`").split())


def test_a_reader_that_closes_the_pipe_is_no_mistake_of_the_command() -> None:
    command = [sys.executable, "-m", "autograd_cookbook", "explain"]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    _, said = process.communicate(pasted(next(iter(PROGRAMS))).encode())
    assert (process.returncode, said) == (141, b"")


def test_an_unknown_message_has_status_1_general_advice_and_a_form_to_report_it(tmp_path, capsys) -> None:
    (tmp_path / "log.txt").write_text("loss.backward()\nRuntimeError: the gradient of frobnicate is out of sorts")
    assert main(["explain", str(tmp_path / "log.txt")]) == 1
    out = capsys.readouterr().out
    assert "not in the index" in out
    assert "set_detect_anomaly" in out
    assert "issues/new?template=unknown-message.yml&title=RuntimeError%3A%20the%20gradient%20of%20frobnicate" in out


def test_json_has_what_a_program_needs(tmp_path, capsys) -> None:
    (tmp_path / "log.txt").write_text(MESSAGE)
    assert main(["explain", "--json", str(tmp_path / "log.txt")]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert set(answer) == {"known", "entries", "general"}
    assert answer["known"] == "yes"
    (entry,) = answer["entries"]
    assert set(entry) == {"name", "title", "tell", "harmless", "cause", "fix", "url", "others"}
    assert entry["name"] == "loss_not_scalar"
    (tmp_path / "log.txt").write_text("KeyError: 'weight'")
    assert main(["explain", "--json", str(tmp_path / "log.txt")]) == 1
    assert json.loads(capsys.readouterr().out)["known"] == "no"


@pytest.mark.parametrize("entry", [entry for entry in entries() if entry.change][::25], ids=lambda entry: entry.name)
def test_json_has_the_advice_that_people_read(entry: Entry) -> None:
    (stored,) = as_json(Explanation("yes", (entry,), "", "", {}, None))["entries"]
    assert stored["fix"].startswith(entry.change), "the one thing to change is missing"
    assert stored["fix"].endswith(entry.fix)
    assert [case["tell"] for case in stored["others"]] == [case.tell for case in entry.others]


def test_the_readers_own_lines_are_quoted(tmp_path, capsys) -> None:
    code = tmp_path / "scale.py"
    code.write_text(
        "from torch.autograd import Function\n\nclass Scale(Function):\n"
        "    def backward(ctx, grad):\n        return 2 * grad\n\nloss = f(x)\nloss.backward()\n"
    )
    log = tmp_path / "log.txt"
    log.write_text("function ScaleBackward returned an incorrect number of gradients (expected 2, got 1)")
    assert main(["explain", str(log), "--code", str(code)]) == 0
    out = capsys.readouterr().out
    assert "scale.py:4: def backward(ctx, grad):" in out
    assert "scale.py:5: return 2 * grad" in out
    # The frame of another machine, before two lines were added above.
    log.write_text(f'  File "/home/me/scale.py", line 6, in <module>\n    loss.backward()\n{MESSAGE}')
    assert main(["explain", str(log), "--code", str(code)]) == 0
    assert "scale.py:8: loss.backward()" in capsys.readouterr().out
    assert main(["explain", str(log)]) == 0
    assert "/home/me/scale.py:6: loss.backward()" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["explain", "no-such-file.txt"], "no-such-file.txt"),
        (["explain", "--verbose"], "unknown argument '--verbose'"),
        (["explain", __file__, "--code", "no-such-file.py"], "no-such-file.py"),
        (["expain"], "'expain'"),
    ],
)
def test_what_cannot_be_understood_has_status_2(argv: list[str], said: str, capsys) -> None:
    assert main(argv) == 2
    assert said in capsys.readouterr().err


def test_a_text_that_is_no_files_name_is_the_message(capsys) -> None:
    assert main(["explain", MESSAGE]) == 0
    assert "This is it" in capsys.readouterr().out
    assert main(["explain", MESSAGE * 100]) == 0  # longer than a name may be


def test_code_is_not_broken_at_its_hyphens() -> None:
    assert any("a-b-c" in line for line in wrapped("x" * (WIDTH - 3) + " a-b-c"))


def test_an_empty_file_is_no_message(tmp_path, capsys) -> None:
    (tmp_path / "empty.txt").touch()
    assert main(["explain", str(tmp_path / "empty.txt")]) == 2
    assert "expected an error message" in capsys.readouterr().err


# --- what readers tell in words ---


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("After the backward pass conv.weight.grad is None for half of the layers.", "told_gradient_none"),
        (
            "With checkpoint(...) and frozen base weights my adapters never update.",
            "told_gradient_none_under_checkpoint",
        ),
        ("From epoch 3 on the loss turns into NaN", "told_nan"),
        ("In mixed precision the logits are inf and the loss is nan", "told_nan_in_half"),
        ("GPU memory usage increases with every batch", "told_memory_grows"),
        (
            "RuntimeError: CUDA out of memory. Tried to allocate 2 MiB\n\nThe memory grows in each epoch.",
            "told_memory_grows",
        ),
        ("Why are the gradients of the first layer all zero?", "told_gradient_zero"),
        ("My embeddings do not get updated", "told_weights_unchanged"),
        ("Training in eager mode is fine, torch.compile gives wrong gradients", "told_compiled_differs"),
        ("With 8 GPUs and DDP it gets stuck in backward", "told_backward_hangs"),
        ("the backward hook is not called", "told_backward_not_called"),
        ("Training loss is not going down with my Function", "told_weights_unchanged"),
        ("Gradients are not flowing through torch.round", "told_gradient_none"),
        ("loss.backward() is ten times slower than the forward", "told_backward_slow"),
        ("Gradient accumulation gives another loss, which does not match a large batch", "told_accumulation_differs"),
        ("Activation checkpointing with checkpoint(...) does not save any memory", "told_checkpoint_saves_nothing"),
        ("The gradients of the model are fine in eager mode; the compiled backward fails", "told_compiled_differs"),
        ("An LSTM on MPS: error when using MPS in loss.backward()", "told_device_differs"),
        ("The backward of a jagged nested tensor fails with an invalid gradient", "nested_in_backward"),
        ("The network just predicts the average of all labels. Its last layer is nn.Linear(20, 1)", "told_broadcast"),
        ("The advantage has shape (batch, 1), the ratio (batch,), and PPO learns nothing", "told_broadcast"),
        ("There is a softmax at the end of the net, the loss is CrossEntropyLoss. It does not converge", "told_logits"),
        ("Each call of the network on the same image gives a different class", "told_mode"),
        ("After the first validation epoch, dropout is not active any more in training", "told_mode"),
        ("The loss is negative, about -35, and falls on", "told_loss_negative"),
        ("Our loss is exactly 0.0 from the start", "told_loss_zero"),
        ("A DQN agent does not learn to balance the pole", "told_agent"),
        ("clip_grad_norm_ does not work, the norm is still 40", "told_clip_without_effect"),
        ("I keep a list of layers in my module. Only the last layer is trained, not the others", "told_not_registered"),
        ("LoRA with load_in_8bit fails in training", "quantized_layer_in_backward"),
        ("Gradient checkpointing with a PEFT adapter fails", "frozen_under_checkpoint"),
        ("functorch.jvp: forward-mode AD is not supported for this loss", "no_forward_formula"),
        ("My GAN raises an error in the generator's backward after an update", "stepped_before_backward"),
        ("I write x[:, 0] = 1 in place, and backward raises an error", "changed_unnamed"),
    ],
)
def test_a_symptom_told_in_words_is_answered_with_what_separates_its_causes(text: str, name: str) -> None:
    found = explain(text)
    assert (found.known, names(found)[0]) == ("maybe", name)
    assert found.entries[0].tell


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB",
        "Which learning rate fits, if gradients are clipped to 1.0?",
        "In Keras my loss becomes NaN (tensorflow.keras.optimizers.Adam)",
        "my gradients explode, what clipping value should I use?",
        "Training takes too long, how do I speed up the data loading?",
        "The discriminator has the wrong image size, error in the generator",
        "pip fails with an error for 8bit LoRA training",
        "Accuracy does not improve, what learning rate should I use?",
        "How do I implement teacher forcing?",
        "What is the difference between reshape and view?",
        "How many workers should a DataLoader have?",
        "Please release the pretrained weights of the paper",
        "How can I plot the accuracy of each epoch?",
        "How do I pad sentences that have different lengths?",
        "Please add a sampler that shuffles in blocks",
        "How to run the inference on my own pictures?",
        "Where do I find the names of the classes?",
        "How does one save the best model?",
    ],
)
def test_what_only_sounds_like_a_symptom_is_none(text: str) -> None:
    assert explain(text).known == "no"


@pytest.mark.parametrize(
    ("got", "expected", "name"),
    [
        ("[12, 8]", "[3, 4, 8]", "gradient_flattened"),
        ("[1, 8]", "[4, 8]", "gradient_reduced"),
        ("[8, 4]", "[4, 8]", "gradient_of_other_shape"),
        ("[5, 3]", "[4, 7]", "gradient_of_other_shape"),
        ("[99, 8]", "[100, 8]", "gradient_of_other_rows"),
    ],
)
def test_how_two_shapes_differ_tells_the_cause(got: str, expected: str, name: str) -> None:
    text = GRADIENT.format("Warp", "").replace("[2]", got).replace("[3]", expected)
    assert name in names(explain(text))[:2]
    assert (explain(text).known == "yes") == (name != "gradient_of_other_rows")


def test_a_warning_that_may_be_ignored_is_said_to_be_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", f"UserWarning: {index()['vmap_falls_back'].message}"]) == 0
    assert "Ignore it: " in capsys.readouterr().out


def test_the_first_exception_counts_where_the_last_is_its_consequence() -> None:
    first = f"{ENGINE}RuntimeError: grad can be implicitly created only for scalar outputs\n"
    for last in (
        "torch.distributed.DistBackendError: [Rank 1] Watchdog caught collective operation timeout",
        "RuntimeError: DataLoader worker (pid 7) is killed by signal: Aborted.",
        "BrokenPipeError: [Errno 32] Broken pipe",
    ):
        found = explain(f"{first}{MODULE}{last}")
        assert (found.known, names(found)) == ("yes", ["loss_not_scalar"])


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("A print at the start of backward in my Function is never shown", "told_backward_not_called"),
        ("The gradients of my kernel do not match those of the reference for reduction='none'", "told_gradients_wrong"),
        ("On a single GPU it trains; with DataParallel on two GPUs the loss does not go down", "told_parallel_differs"),
        ("It works on the CPU, on MPS loss.backward() gives a wrong gradient", "told_device_differs"),
        ("The Hessian through my Function is zero everywhere", "told_second_order"),
        ("With gradient checkpointing(...) the loss differs from the run without it", "told_checkpoint_differs"),
        ("Loss is nan, stopping training", "told_nan"),
        ("Workers started by multiprocessing hang in backward, after the parent trained once", "forked_after_backward"),
        ("torch.linalg.svd of a matrix of low rank: the gradient is NaN", "nan_in_decomposition"),
        ("Inside of vmap, torch.autograd.grad finds requires_grad to be False", "backward_under_vmap"),
        ("My @torch.library.custom_op works, but no gradient arrives before it", "backward_without_formula"),
        ("My jvp reads ctx.saved_tensors, which is empty in forward mode", "saved_for_backward_only"),
    ],
)
def test_a_message_told_in_words_is_known_by_its_signs(text: str, name: str) -> None:
    found = explain(text)
    assert (found.known, names(found)[0]) == ("maybe", name)
    assert found.entries[0].tell or found.entries[0].change


@pytest.mark.parametrize(
    ("frames", "name"),
    [
        (
            '  File "/usr/lib/python3.11/multiprocessing/process.py", line 108, in run\n    self._target(*self._args)\n'
            '  File "train.py", line 9, in work\n    loss.backward()\n',
            "forked_after_backward",
        ),
        (
            '  File "/env/torch/_functorch/_aot_autograd/runtime_wrappers.py", line 7, in process_runtime_tangent\n',
            "compiled_gradient_of_other_class",
        ),
        (
            '  File "train.py", line 4, in fit\n    ema = copy.deepcopy(model)\n'
            '  File "/usr/lib/python3.11/copy.py", line 172, in deepcopy\n    y = _reconstruct(x, memo, *rv)\n',
            "module_with_output_copied",
        ),
    ],
)
def test_a_traceback_that_ends_before_its_message_is_known_by_its_places(frames: str, name: str) -> None:
    found = explain(f"Traceback (most recent call last):\n{frames}")
    assert (found.known, names(found)[0]) == ("maybe", name)
    # The message itself decides, where it is there.
    assert explain(f"Traceback (most recent call last):\n{frames}{MESSAGE}").known == "yes"


# --- what has no message that is known: the entries that speak of it ---

TOPIC = (
    "We resume from a state of the optimizer. The layers were frozen since, so the groups list other parameters by "
    "position than the state that was saved"
)


def test_a_text_without_a_message_gets_the_entries_that_have_its_words(capsys: pytest.CaptureFixture[str]) -> None:
    found = explain(TOPIC)
    assert (found.known, found.worded, names(found)[0]) == ("maybe", True, "optimizer_state_of_other_size")
    assert main(["explain", TOPIC]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Probably one of these")
    assert "No message of the index is in the text" in squeezed(out)


def test_what_has_the_message_and_not_its_surroundings_is_no_topic() -> None:
    message = f"{index()['grad_output_viewed'].kind}: {index()['grad_output_viewed'].message}"
    assert explain(f"{IN_FORWARD}{message}").known == "no"


@pytest.mark.parametrize("text", ["It is slow", "RuntimeError: frobnicate of the sprocket failed", "gradient of x"])
def test_a_few_words_are_no_topic(text: str) -> None:
    assert (explain(text).known, names(explain(text))) == ("no", [])


@pytest.mark.parametrize(
    ("every", "most"), [pytest.param(6, 0.15, id="some"), pytest.param(1, 0.1, id="all", marks=slow)]
)
def test_causes_lead_to_their_entries_by_their_words(every: int, most: float) -> None:
    """As a reader tells it who knows what is wrong, and has not the message."""
    told = [entry for entry in entries() if len(entry.cause) > 150][::every]
    found = {entry.name: explain(entry.cause.replace("``", "")) for entry in told}
    missed = [name for name, f in found.items() if f.known == "no" or name not in names(f)[:2]]
    assert len(missed) <= most * len(found), missed


def test_what_is_told_in_words_can_be_asked_about() -> None:
    assert not [stored["name"] for stored in matcher().entries if stored.get("signs") and not stored.get("tell")]


# --- what a text shows besides its message: the cases of an entry ---

UNFINISHED = "RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one."


@pytest.mark.parametrize(
    ("text", "name", "advice"),
    [
        (f"{UNFINISHED} find_unused_parameters=True is set.", "ddp_unfinished", "every output of ``forward``"),
        (f"mmdet 2.1: {UNFINISHED}", "ddp_unfinished", "in the configuration file"),
        (
            "UserWarning: pool_backward_cuda does not have a deterministic implementation, but you set "
            "'torch.use_deterministic_algorithms(True, warn_only=True)'",
            "not_deterministic",
            "You need not change anything",
        ),
        (
            "RuntimeError: Output 3 of BroadcastBackward is a view and its base or another view of its base has been "
            "modified inplace. This view is the output of a function that returns multiple views.",
            "split_then_changed",
            "``DistributedDataParallel``",
        ),
        (
            '  File "env/site-packages/torch/optim/sparse_adam.py", line 8, in step\n    a.sparse_mask(grad)\n'
            "RuntimeError: Cannot access data pointer of Tensor that doesn't have storage",
            "numpy_inside",
            "dense parameter",
        ),
        (
            "RuntimeError: Function AddBackward0 returned an invalid gradient at index 1 - expected device cuda:1 but "
            "got cuda:0",
            "gradient_on_other_device",
            "``a.to(b.device)``",
        ),
        (
            "RuntimeError: Trying to backward through the graph a second time. I have set retain_graph=True.",
            "backward_again",
            "Detach what is kept",
        ),
        (
            "RuntimeError: One of the differentiated Tensors appears to not have been used in the graph. With "
            "allow_unused=True it returns None.",
            "input_not_used",
            "this same tensor",
        ),
        (
            "In validation_step: element 0 of tensors does not require grad and does not have a grad_fn",
            "nothing_requires_grad",
            "``with torch.enable_grad():``",
        ),
        ("My loss uses torch.where around the logarithm and becomes NaN", "told_nan", "Mask the argument"),
    ],
)
def test_what_a_text_shows_besides_its_message_refines_the_advice(text: str, name: str, advice: str) -> None:
    first = explain(text).entries[0]
    assert (first.name, first.special) == (name, True)
    assert advice in " ".join(first.advice)


DDP_DEVICES = "ValueError: DistributedDataParallel device_ids and output_device arguments only work with single-device"
DDP_DEVICES += (
    "/multiple-device GPU modules or CPU modules, but got device_ids [0], output_device 0, and module parameters "
)
COLLECTIVES = "RuntimeError: Detected mismatch between collectives on ranks. Rank 2 is running collective: "
COLLECTIVES += (
    "CollectiveFingerPrint(SequenceNumber=4, OpType=ALLREDUCE, TensorShape=[8], TensorDtypes=Float), but Rank 0 is "
)
COLLECTIVES += "running collective: CollectiveFingerPrint(SequenceNumber=4, OpType="
XFORMERS = (
    "NotImplementedError: No operator found for `memory_efficient_attention_forward` with inputs:\n     query       : "
)
XFORMERS += "shape=(1, 577, 16, 64) (torch.float16)\n`cutlassF` is not supported because:\n    "
CONSTANT = "RuntimeError: Cannot insert a Tensor that requires grad as a constant. Consider making it a parameter or "
CONSTANT += "input, or detaching the gradient\n"
NO_PARAMETERS = "ValueError: optimizer got an empty parameter list\nclass Net(nn.Module):\n    def "


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("TypeError: optimizer can only optimize Tensors, but one of the params is tuple", "model.named_parameters()"),
        ("TypeError: optimizer can only optimize Tensors, but one of the params is Module.parameters", "one flat list"),
        (f"{DDP_DEVICES}{{device(type='npu', index=2), device(type='npu', index=3)}}.", "device_map="),
        (f"{DDP_DEVICES}{{device(type='cpu')}}.", "model.to(local_rank)"),
        (f"{COLLECTIVES}ALLREDUCE, TensorShape=[5], TensorDtypes=Float).", "dummy image"),
        (f"{COLLECTIVES}BROADCAST, TensorShape=[5], TensorDtypes=Float).", "Run every forward"),
        (f"{XFORMERS}xFormers wasn't build with CUDA support", "built for your torch"),
        (f"{XFORMERS}device=cpu (supported: {{'cuda'}})", "put all tensors on the GPU"),
        (f"{CONSTANT}I keep the kernel matrix in self.k_cache and trace the model then", "Fill the cache"),
        (
            f'{CONSTANT}  File "/root/.cache/env/lib/torch/jit/_trace.py", line 7, in trace',
            "Pass the tensor as an input",
        ),
        (f"{NO_PARAMETERS}__int__(self):", "two underscores"),
        (f"{NO_PARAMETERS}__init__(self):", "nn.ModuleList"),
        ("FlashAttention backward for head dim > 192 requires A100/A800 or H100/H800", "'sdpa'"),
        ("NotImplementedError: Could not run 'aten::mse_loss' with arguments from the 'SparseCPU' backend.", "labels."),
        ("TypeError: UNet._set_gradient_checkpointing() got an unexpected keyword argument 'value'", "public method"),
        ("TypeError: _set_gradient_checkpointing() got an unexpected keyword argument 'enable'", "model's code"),
    ],
)
def test_what_a_message_names_decides_between_its_causes(text: str, advice: str) -> None:
    found = explain(text)
    assert found.known != "no"
    assert advice in found.entries[0].advice[0]


# --- advice of cases, shown by a run: what a reader pastes is the program and what it raised ---

BACKED = [
    (
        "loss_not_scalar",
        """
        x = torch.ones(3, requires_grad=True)
        loss = F.mse_loss(2 * x, torch.zeros(3), reduction="none")
        loss.backward()
        """,
        """
        x = torch.ones(3, requires_grad=True)
        loss = F.mse_loss(2 * x, torch.zeros(3), reduction="none")
        loss.mean().backward()
        """,
        "mean()",
    ),
    (
        "nothing_requires_grad",
        """
        x = torch.ones(3, requires_grad=True)
        (g,) = torch.autograd.grad((2 * x).sum(), x, create_graph=True)
        torch.autograd.grad(g.sum(), x)
        """,
        """
        x = torch.ones(3, requires_grad=True)
        (g,) = torch.autograd.grad((2 * x).sum(), x, create_graph=True)
        g2 = torch.autograd.grad(g.sum(), x)[0] if g.requires_grad else torch.zeros_like(x)
        """,
        "zeros_like",
    ),
    (
        "nothing_requires_grad",
        """
        w = torch.ones(3, requires_grad=True)
        losses = [(w * i).sum() for i in range(2)]
        torch.tensor([loss.item() for loss in losses]).mean().backward()
        """,
        """
        w = torch.ones(3, requires_grad=True)
        losses = [(w * i).sum() for i in range(2)]
        torch.stack(losses).mean().backward()
        """,
        "torch.stack",
    ),
    (
        "nothing_requires_grad",
        """
        # Lightning runs training_step as the closure of my own optimizer, instead of Adam
        w = torch.ones(3, requires_grad=True)

        @torch.no_grad()
        def step(closure):
            closure()

        step(lambda: (w * 2).sum().backward())
        """,
        """
        w = torch.ones(3, requires_grad=True)

        @torch.no_grad()
        def step(closure):
            with torch.enable_grad():
                closure()

        step(lambda: (w * 2).sum().backward())
        """,
        "torch.enable_grad()",
    ),
    (
        "input_not_used",
        """
        x = torch.ones(4, 2, requires_grad=True)
        torch.autograd.grad(x.square().sum(), x[:, 0])
        """,
        """
        x = torch.ones(4, 2, requires_grad=True)
        torch.autograd.grad(x.square().sum(), x)[0][:, 0]
        """,
        "[:, 0]",
    ),
    (
        "integers_require_grad_later",
        """
        scores = torch.randn(4, 3, requires_grad=True)
        predicted = scores.argmax(1)
        predicted.requires_grad_()
        """,
        """
        scores = torch.randn(4, 3, requires_grad=True)
        F.cross_entropy(scores, torch.tensor([0, 1, 2, 0])).backward()
        """,
        "cross_entropy",
    ),
    (
        "retain_grad_of_constant",
        """
        xys = torch.ones(3, requires_grad=True)
        with torch.no_grad():
            xys = xys * 2
        xys.retain_grad()
        """,
        """
        xys = torch.ones(3, requires_grad=True)
        with torch.no_grad():
            xys = xys * 2
        if xys.requires_grad:
            xys.retain_grad()
        """,
        "if xys.requires_grad",
    ),
    (
        "result_optimized",
        """
        weight = torch.ones(3, requires_grad=True).double()
        torch.optim.SGD([weight], lr=0.1)
        """,
        """
        weight = torch.ones(3).double().requires_grad_()
        torch.optim.SGD([weight], lr=0.1)
        """,
        "requires_grad",
    ),
    (
        "weight_replaced",
        """
        model = torch.nn.ModuleList([torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)])
        model[0](torch.ones(1, 2)).sum().backward()
        for p in model.parameters():
            p.data -= 0.1 * p.grad
        """,
        """
        model = torch.nn.ModuleList([torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)])
        model[0](torch.ones(1, 2)).sum().backward()
        for p in model.parameters():
            if p.grad is not None:
                p.data -= 0.1 * p.grad
        """,
        "if p.grad is not None",
    ),
    (
        "captured_tensor_mutated",
        """
        norm = torch.nn.BatchNorm1d(3)
        torch.func.jacrev(norm)(torch.randn(4, 3))
        """,
        """
        norm = torch.nn.BatchNorm1d(3)
        torch.func.replace_all_batch_norm_modules_(norm)
        torch.func.jacrev(norm)(torch.randn(4, 3))
        """,
        "replace_all_batch_norm_modules_",
    ),
]


@pytest.mark.parametrize(
    ("name", "broken", "fixed", "advice"),
    [pytest.param(*case, id=f"{case[0]}-{case[3]}") for case in BACKED],
)
def test_the_advice_of_a_case_makes_its_program_run(name: str, broken: str, fixed: str, advice: str) -> None:
    names = {"torch": torch, "F": torch.nn.functional}
    with pytest.raises((RuntimeError, TypeError, ValueError)) as raised:
        exec(textwrap.dedent(broken), dict(names))
    exec(textwrap.dedent(fixed), dict(names))
    found = explain(f"{textwrap.dedent(broken)}\n{raised.type.__name__}: {raised.value}").entries[0]
    assert (found.name, found.special) == (name, True)
    assert advice in " ".join((*found.advice, found.fix))


def test_what_cases_say_of_programs_that_raise_nothing_is_so() -> None:
    moved = torch.ones(3, requires_grad=True).double()
    made = torch.ones(3).double().requires_grad_()
    for x in (moved, made):
        x.square().sum().backward()
    with pytest.warns(UserWarning, match="not a leaf"):
        assert moved.grad is None
    assert made.grad is not None

    class Returns(torch.nn.Module):
        def forward(self, x, structure):
            return structure(2 * x)

    x = torch.ones(3, requires_grad=True)
    seen = []
    for name, structure in {"list": lambda y: [y], "dict": lambda y: {0: y}, "tuple": lambda y: (y,)}.items():
        module = Returns()
        module.register_full_backward_hook(lambda *_, name=name: seen.append(name))
        with contextlib.nullcontext() if name == "tuple" else pytest.warns(UserWarning, match="For backward hooks"):
            module(x, structure)[0].sum().backward()
    assert seen == ["tuple"]


def test_what_entries_say_of_losses_that_raise_nothing_is_so() -> None:
    # Shapes that broadcast: the best prediction is the mean.
    x = torch.randn(50, 2)
    y = 10 + x @ torch.tensor([9.0, -2.0])
    linear = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(linear.parameters(), lr=0.1)
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for _ in range(300):
            optimizer.zero_grad()
            F.mse_loss(linear(x), y).backward()
            optimizer.step()
    assert warned
    assert all("target size" in str(each.message) for each in warned)
    assert torch.allclose(linear(x).squeeze(1), y.mean().expand(50), atol=1e-3)
    # A softmax or a sigmoid in front of a loss that takes logits.
    for count, lowest in {2: 0.31, 3: 0.55, 10: 1.46}.items():
        perfect = F.one_hot(torch.tensor([0]), count).float()
        assert F.cross_entropy(perfect, torch.tensor([0])).item() == pytest.approx(lowest, abs=0.005)
        assert math.log(1 + (count - 1) / math.e) == pytest.approx(lowest, abs=0.005)
    assert torch.sigmoid(torch.tensor([0.0, 1.0])).tolist() == pytest.approx([0.5, 0.73], abs=0.005)
    # A mean of nothing.
    logits = torch.randn(5, 7, requires_grad=True)
    ignored = F.cross_entropy(logits, torch.full((5,), -100))
    (grad,) = torch.autograd.grad(ignored, logits)
    assert ignored.isnan()
    assert not grad.any()
    unweighted = F.cross_entropy(logits, torch.zeros(5, dtype=torch.long), weight=torch.zeros(7))
    assert torch.autograd.grad(unweighted, logits)[0].isnan().any()
    # CTC: four equal labels need seven steps.
    for zero_infinity in (False, True):
        scores = torch.randn(6, 1, 5, requires_grad=True)
        lengths = torch.tensor([6]), torch.tensor([4])
        ctc = F.ctc_loss(
            scores.log_softmax(2), torch.ones(1, 4, dtype=torch.long), *lengths, zero_infinity=zero_infinity
        )
        assert ctc.isfinite() == zero_infinity
        assert torch.autograd.grad(ctc, scores)[0].isfinite().all() == zero_infinity
    # One element has no standard deviation.
    norm = torch.nn.BatchNorm1d(3)
    with pytest.raises(ValueError, match="more than 1 value"):
        norm(torch.randn(1, 3))
    state = norm.weight, norm.bias, norm.running_mean, norm.running_var
    output, *_ = torch.native_batch_norm(torch.randn(1, 3), *state, True, 0.1, 1e-5)
    assert output.abs().max() < 1e-3
    assert norm.running_var.isnan().all()
    # Losses below 0, and a loss that is always 0.
    assert F.binary_cross_entropy_with_logits(torch.tensor([9.0]), torch.tensor([2.0])) < -8
    assert -1 < F.nll_loss(torch.tensor([[0.2, 0.8]]), torch.tensor([1])) < 0
    assert F.kl_div(torch.tensor([0.2, 0.8]), torch.tensor([0.5, 0.5]), reduction="sum") < 0
    one = torch.randn(5, 1, requires_grad=True)
    always = F.cross_entropy(one, torch.zeros(5, dtype=torch.long))
    assert always == 0
    assert not torch.autograd.grad(always, one)[0].any()


def test_what_entries_say_of_steps_that_change_nothing_is_so() -> None:
    def trained(model: torch.nn.Module, optimizer: torch.optim.Optimizer) -> list[str]:
        before = {name: p.detach().clone() for name, p in model.named_parameters()}
        optimizer.step()
        return [name for name, p in model.named_parameters() if not torch.equal(p, before[name])]

    x = torch.randn(4, 3)
    linear = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(linear.parameters())
    linear(x).sum().backward()
    optimizer.zero_grad()  # between backward and step
    assert not trained(linear, optimizer)
    # A layer that was replaced after the optimizer was made.
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model[1] = torch.nn.Linear(3, 4)
    model(x).square().sum().backward()
    assert trained(model, optimizer) == ["0.weight", "0.bias"]
    before = [id(p) for p in model.parameters()]
    assert [id(p) for p in model.to(x.device).parameters()] == before

    class Listed(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = [torch.nn.Linear(3, 3)]
            self.scale = torch.ones(1, requires_grad=True)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.scale * self.layers[0](x)

    listed = Listed()
    listed(x).sum().backward()
    assert not list(listed.parameters())
    assert not listed.state_dict()
    assert listed.scale.grad is not None
    # The value of a parametrized weight is no parameter.
    layer = torch.nn.utils.parametrizations.weight_norm(torch.nn.Linear(2, 2))
    assert set(layer.parameters()) - {layer.weight} == set(layer.parameters())
    assert "parametrizations.weight.original0" in dict(layer.named_parameters())
    # A parameter that forward makes of another.
    old = torch.nn.Parameter(torch.ones(2))
    torch.nn.Parameter(old / 2).sum().backward()
    assert old.grad is None


def test_what_entries_say_of_a_loss_that_gathers_is_so() -> None:
    def gradients() -> dict[str, object]:
        import torch
        from torch.distributed.nn.functional import all_gather

        x = torch.ones(2, requires_grad=True)
        into = [torch.empty(2) for _ in range(2)]
        torch.distributed.all_gather(into, x)
        (torch.cat(all_gather(x)) * (torch.distributed.get_rank() + 1)).sum().backward()
        return {"history": [part.requires_grad for part in into], "grad": x.grad.tolist()}

    # Each rank has the sum of the losses of both.
    assert run_ranks(gradients, 2) == [{"history": [False, False], "grad": [3.0, 3.0]}] * 2


def test_what_entries_say_of_clipping_and_of_comparisons_is_so() -> None:
    linear = torch.nn.Linear(2, 2)
    parameters = linear.parameters()
    torch.optim.SGD(parameters, lr=0.1)
    linear(torch.ones(1, 2)).sum().backward()
    grads = [p.grad for p in linear.parameters()]
    norm = torch.nn.utils.get_total_norm(grads)
    with pytest.warns(UserWarning, match="empty generator"):
        torch.nn.utils.clip_grad_norm_(parameters, 0.1)
    assert torch.nn.utils.get_total_norm(grads) == norm
    assert torch.nn.utils.clip_grad_norm_(linear.parameters(), 0.1) == norm  # the norm before
    assert torch.nn.utils.get_total_norm(grads) < 0.11
    # The sum of what is normalized does not depend on the input.
    x, weight = torch.randn(64, 8, requires_grad=True), torch.ones(8, requires_grad=True)
    for total in (F.layer_norm(x, (8,)).sum(), x.softmax(1).sum()):
        assert torch.autograd.grad(total, x)[0].abs().max() < 1e-5
    total = F.batch_norm(x, None, None, weight, training=True).sum()
    assert torch.autograd.grad(total, weight)[0].abs().max() < 1e-4
    # A small gradient in float16, and a hard choice.
    assert torch.tensor(1e-8).half() == 0
    x = torch.randn(3, 5, requires_grad=True)
    soft = x.softmax(-1)
    hard = F.one_hot(soft.argmax(-1), 5)
    assert not hard.requires_grad
    passed = hard + soft - soft.detach()
    assert torch.equal(passed.round(), hard.float())
    assert torch.autograd.grad((passed * torch.randn(5)).sum(), x)[0].any()
    # Dropout of the function knows no mode, and a base can be detached.
    assert (F.dropout(torch.ones(1000)) == 0).any()
    hidden = 2 * torch.randn(2, 3, requires_grad=True)
    assert hidden.detach_()[0].is_leaf


def test_what_a_library_does_is_not_what_the_reader_does() -> None:
    said = "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn"
    frame = '  File "{}", line 3, in step\n    loss = torch.tensor(losses.detach().numpy())\n'
    own, library = (explain(frame.format(file) + said) for file in ("train.py", "/x/site-packages/lib/train.py"))
    assert own.entries[0].special
    assert not library.entries[0].special


def test_a_warning_that_is_not_in_the_index_is_the_message() -> None:
    found = explain("/x/torch/sprocket.py:12: UserWarning: The sprocket of the frobnicator is not oiled")
    assert (found.known, found.message) == ("no", "UserWarning: The sprocket of the frobnicator is not oiled")
    assert "This is a warning" in found.general


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("/x/site-packages/opacus/optimizers/optimizer.py", "ModuleValidator.fix"),
        ("/x/envs/opacus/lib/python3.11/site-packages/frobnicator/core.py", "installed library"),
        ("/x/site-packages/torchdiffeq/_impl/adjoint.py", "odeint_adjoint by odeint"),
        ("/x/site-packages/wandb/sdk/watch.py", "wandb.watch"),
    ],
)
def test_a_library_that_raises_is_named_and_has_a_first_step(file: str, said: str) -> None:
    found = explain(f'  File "{file}", line 3, in step\n    check(x)\nFrobnicationError: the sprocket is not oiled')
    assert (found.known, said in found.general) == ("no", True), found.general


@pytest.mark.parametrize(
    ("text", "name", "advice"),
    [
        (
            "one of the variables needed for gradient computation has been modified by an inplace operation: "
            "[torch.cuda.LongTensor [8]] is at version 3; expected version 2 instead.",
            "index_changed",
            "ids.clone()",
        ),
        ("NAdam does not support sparse gradients", "sparse_for_adam", "sparse=True"),
        ("dim() called on undefined Tensor", "undefined_gradient", "Update torch"),
        (
            "torch.utils.checkpoint: Recomputed values for the following tensors have different metadata than during "
            "the forward pass.\ntensor at position 3:\nsaved metadata: {'shape': torch.Size([128])}\n"
            "recomputed metadata: {'shape': torch.Size([0])}",
            "zero3_recomputed_partitioned",
            "use_reentrant",
        ),
        ("derivative for batch_norm_backward_elemt is not implemented", "second_derivative_missing", "GroupNorm"),
    ],
)
def test_what_the_message_names_decides_the_advice(text: str, name: str, advice: str) -> None:
    found = explain(f"RuntimeError: {text}")
    assert found.entries[0].name == name
    assert advice in " ".join((*found.entries[0].advice, found.entries[0].fix))


@pytest.mark.parametrize(
    "text",
    [
        UNFINISHED,
        f"{UNFINISHED} You can enable unused parameter detection by passing the keyword argument "
        "`find_unused_parameters=True` to `torch.nn.parallel.DistributedDataParallel`.",
        f"{UNFINISHED} Would find_unused_parameters=True help?",
    ],
)
def test_what_is_advised_or_asked_about_was_not_tried(text: str) -> None:
    assert not explain(text).entries[0].special


IN_PLACE = (
    "RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation"
)
UNSCALED = "RuntimeError: unscale_() has already been called on this optimizer since the last update()."


@pytest.mark.parametrize(
    ("text", "name", "advice"),
    [
        (
            f"h, c = lstm(x, (h, c))\nloss.backward(retain_graph=True)\n{IN_PLACE}: [torch.FloatTensor [8, 6]] is at "
            "version 2; expected version 1 instead.",
            "stepped_before_backward",
            "h, c = h.detach(), c.detach()",
        ),
        (f"The model has spectral_norm layers.\n{IN_PLACE}", "changed_unnamed", "one backward after each forward"),
        (f"loss_D.backward(); opt_D.step(); loss_G.backward()\n{IN_PLACE}", "changed_unnamed", "D(fake.detach())"),
        (f"norm too large, skipping optimizer step\n{UNSCALED}", "unscaled_twice", "scaler.update() in each iteration"),
        (f"We accumulate over 4 batches.\n{UNSCALED}", "unscaled_twice", "only in the iterations that step"),
        (
            "RuntimeError: the derivative for 'inplace version of erfinv' is not implemented.",
            "derivative_of_input_missing",
            "out of place",
        ),
        (
            "y = torch.ops.mylib.scale(x)\nRuntimeError: element 0 of tensors does not require grad and does not have "
            "a grad_fn",
            "nothing_requires_grad",
            "register_autograd",
        ),
        (
            "RuntimeError: Function 'MulBackward0' returned nan values in its 0th output.\nn = torch.norm(d, dim=1)",
            "nan_in_product",
            "under the root",
        ),
        (
            "grad_norm: nan\ngrad_norm: 3.25\ngrad_norm: 3.5\nat the first step grad_norm is nan",
            "told_nan",
            "Do nothing if the nan or inf stops",
        ),
        ("Loss nan  Fp16 Grad Scale: 0\nLoss nan  Fp16 Grad Scale: 0", "told_nan_in_half", "not at the scaler"),
        ("model.forward(x) is called, and my backward hook is never called", "told_backward_not_called", "model(x)"),
        (
            "Fine on a single GPU, but DDP stops:\nParameter at index 7 with name head.bias has been marked "
            "as ready twice. This means that multiple autograd engine hooks have fired for this particular parameter "
            "during this iteration.",
            "ddp_ready_twice",
            "use_reentrant=False",
        ),
        (
            '  File "/lib/python3.8/site-packages/torch/nn/parallel/replicate.py", line 146, in replicate\n'
            "    setattr(replica, key, Parameter(param))\n"
            "RuntimeError: Only Tensors of floating point dtype can require gradients",
            "integers_require_grad_later",
            "register_buffer",
        ),
        (
            "Tensors of the same index must be on the same device and the same dtype except `step` tensors that can be "
            "CPU and float32 notwithstanding",
            "optimizer_state_on_other_device",
            "foreach=False",
        ),
        (
            "NotImplementedError: Could not run 'aten::_scaled_dot_product_flash_attention_backward' with arguments "
            "from the 'NestedTensorCUDA' backend.",
            "no_backward_for_nested",
            "torch.jagged",
        ),
        (
            "Expected type: torch.distributed.tensor.DTensor\nRuntime type: torch.Tensor\nshape: torch.Size([4, 8])",
            "compiled_gradient_of_other_class",
            "border of the compiled function",
        ),
        (
            "RuntimeError: compiled_args nyi, see [Note: Compiled Autograd] 7MyNode",
            "compiled_autograd_of_cpp_hook",
            "Switch compiled autograd off",
        ),
        (
            "Detected at least one parameter gradient is not the expected DDP bucket view",
            "ddp_gradient_no_view",
            "gradient_as_bucket_view=False",
        ),
        (
            'INTERNAL ASSERT FAILED at "../torch/csrc/autograd/generated/Functions.cpp":61, inconsistent range for '
            "TensorList output",
            "index_with_history",
            "detach().argmax",
        ),
        (
            "I get a CheckpointError as soon as the block runs in autocast",
            "recomputation_in_other_dtype",
            "cache_enabled=False",
        ),
        (
            "self.manual_backward(loss)\nAssertionError: Expected to be in states "
            "[<HandleTrainingState.BACKWARD_PRE: 3>] but current state is HandleTrainingState.FORWARD",
            "fsdp_training_state",
            "outside the wrapped forward",
        ),
        (
            "traced_function_transforms.py in aot_dispatch_autograd_graph\nBackendCompilerFailed: backend='inductor' "
            f"raised:\n{IN_PLACE}: [torch.FloatTensor [3]], which is output 0 of Exp, is at version 1; expected "
            "version 0 instead.",
            "result_changed",
            "records its forward and its backward together",
        ),
        (
            "create_aot_dispatcher_function\nRuntimeError: derivative for aten::heaviside is not implemented",
            "derivative_missing",
            "records its backward, too",
        ),
        (
            "During the backward, we encountered a tensor subclass where we guessed its metadata incorrectly.\n"
            "Expected type: torch.distributed._functional_collectives.AsyncCollectiveTensor\nRuntime type: "
            "torch.Tensor",
            "compiled_gradient_of_other_class",
            "wait_tensor",
        ),
        (
            "device_grads = torch._foreach_add(device_grads, device_params, alpha=weight_decay)\nRuntimeError: The "
            "size of tensor a (2) must match the size of tensor b (16) at non-singleton dimension 3",
            "adam_of_complex",
            "foreach=False",
        ),
        (
            "ValueError: DistributedDataParallel's input module must be on the same type of devices, but input module "
            "parameters locate in {'cpu', 'cuda'}.",
            "ddp_device_of_cpu",
            "Frozen parameters count",
        ),
        (
            "RuntimeError: Function ViewBackward returned an invalid gradient at index 0 - expected device cpu:0 but "
            "got cpu",
            "gradient_on_other_device",
            "without an index",
        ),
        (
            "AttributeError: 'NoneType' object has no attribute 'cquantize_blockwise_fp16_nf4'",
            "bitsandbytes_without_gpu",
            "python -m bitsandbytes",
        ),
        (
            "AssertionError: len(set(p.ds_id for p in params_in_bucket)) == len(params_in_bucket)",
            "zero3_reduced_twice",
            "use_reentrant=False",
        ),
        (
            "ScatterGatherKernel.cu:312: operator(): block: [0,0,0], thread: [1,0,0] Assertion `idx_dim >= 0 && "
            'idx_dim < index_size && "index out of bounds"` failed.',
            "device_assert",
            "on the CPU",
        ),
        (
            "Tensors that I compute in a backward hook cannot get a grad_fn.",
            "nothing_requires_grad",
            "enable_grad",
        ),
    ],
)
def test_the_cause_that_a_text_shows_is_named(text: str, name: str, advice: str) -> None:
    found = explain(text)
    assert names(found)[0] == name
    assert advice in " ".join([*found.entries[0].advice, found.entries[0].cause])


def test_causes_that_need_not_show_are_asked_about(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", IN_PLACE]) == 0
    out = squeezed(capsys.readouterr().out)
    assert "Or is it this?" in out
    assert "Two networks are trained against each other" in out
    assert "Or is it this?" not in told_of(f"Discriminator and generator.\n{IN_PLACE}", capsys)


def told_of(text: str, capsys: pytest.CaptureFixture[str]) -> str:
    main(["explain", text])
    return capsys.readouterr().out


def test_an_extension_of_another_release_has_nothing_to_do_with_gradients() -> None:
    found = explain("RuntimeError: scatter_max() expected at most 5 argument(s) but received 6 argument(s)")
    assert found.known == "no"
    assert "torch_scatter" in found.general


def test_strewn_words_of_a_message_are_none() -> None:
    text = (
        "FlexAttention is used before my layer, and the model supports several heads. When I look at the result of the "
        "whole step, the backward of my own layer computes nothing on the second device, which surprises me, because "
        "an older experiment of a colleague behaves well."
    )
    assert "flex_attention_on_cpu" not in names(explain(text))


def test_a_case_that_the_text_shows_speaks_for_its_entry() -> None:
    text = "Trying to backward through the graph a second time"
    assert names(explain(text)) == ["backward_again", "state_kept"]
    assert names(explain(f"With spiking layers: {text}"))[0] == "state_kept"


def test_a_case_has_another_fix_than_the_program_shows(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", f"{UNFINISHED} find_unused_parameters=True is set."]) == 0
    out = capsys.readouterr().out
    assert "Use every output of `forward` in the loss" in squeezed(out)
    assert "A program that raises it" not in out
    assert "not run here" in out


def test_cases_read_well_and_ask_about_what_there_is() -> None:
    facts = "text|printed|own|frames|end|place|raiser|raised|told|tried|about"
    facts += "|message|said|shapes?|node|formula|type|op|device"
    for stored, entry in zip(matcher().entries, entries(), strict=True):
        assert len(entry.cases) == len(stored.get("cases", ()))
        for case, special in zip(stored.get("cases", ()), entry.cases, strict=True):
            assert {"tell", "when"} < set(case), f"{entry.name}: {case}"
            assert all(re.match(f"(?:not )?(?:{facts}): ", sign) for sign in case["when"]), f"{entry.name}: {case}"
            for text in (special.tell, special.cause, special.fix, special.change):
                assert not text or text.endswith((".", ":")), f"{entry.name}: {text}"
                assert text.count("``") % 2 == 0, f"{entry.name}: {text}"


def test_a_function_that_pytorch_has_written_in_python_is_no_librarys() -> None:
    text = "Output 0 of BackwardHookFunctionBackward is a view and is being modified inplace. This view was created "
    found = explain(f"RuntimeError: {text}inside a custom Function (or because an input was returned as-is)")
    assert (names(found)[0], found.note) == ("hooked_module_then_in_place", "")
    places = "_lobpcg nn.modules._functions nn.parallel._functions nn.parallel.distributed utils.checkpoint"
    places += " distributed.nn.functional distributed.tensor._api distributed.tensor._redistribute"
    modules = [importlib.import_module(f"torch.{place}") for place in places.split()]
    written = {name for module in modules for name in vars(module)}
    assert set(matcher().rules["functions"]["names"]) <= written


def test_a_traceback_that_was_cut_within_the_engine_is_about_nothing_yet() -> None:
    """Its places are those of every backward, and the heading of a notebook is not the message."""
    text = (
        "y = f(x)\ny.backward()\n\nRuntimeError                       Traceback (most recent call last)\n"
        "File /env/site-packages/torch/_tensor.py:487, in Tensor.backward(self, gradient, retain_graph, create_graph)\n"
        "--> 487 torch.autograd.backward(\n"
        "File /env/site-packages/torch/autograd/__init__.py:200, in backward(tensors, grad_tensors, retain_graph)\n"
        "--> 200 Variable._execution_engine.run_backward(  # Calls into the C++ engine to run the backward pass\n"
    )
    found = explain(text)
    assert (found.known, names(found)) == ("no", [])
    assert "no error message" in found.general


def test_signs_come_before_words_in_common() -> None:
    """What an entry names as its signs is more than an entry that has most of the words."""
    text = (
        "/env/torch/distributed/tensor/_dispatch.py:439: UserWarning: found a tensor, creating a replicated DTensor\n"
        'Traceback (most recent call last):\n  File "gpt.py", line 7, in train\n'
        "    clip_grad_norm_(optimizer.param_groups[0]['params'], 0.1)\n"
    )
    assert names(explain(text))[0] == "clipped_with_dtensors"


# --- what is said besides ---


def test_a_function_with_the_name_of_an_operator_is_no_operation_of_torch() -> None:
    """Old releases gave no number to nodes, and only a Function written in Python returns too few gradients."""
    found = explain("RuntimeError: function SignBackward returned an incorrect number of gradients (expected 2, got 1)")
    assert (found.known, names(found)) == ("yes", ["gradient_missing"])
    assert "operation of PyTorch" not in found.note


def test_an_extension_of_another_release_is_known_anywhere_in_a_text() -> None:
    text = "/env/ops.so: undefined symbol: _ZN2at4_ops3sumE\nRuntimeError: Failed to import the model"
    assert "does not fit the installed torch" in explain(text).general


def test_a_check_of_the_engine_is_none_of_a_kernel() -> None:
    text = "RuntimeError: torch/csrc/autograd/buffer.cpp:14: add: Assertion `0 <= i && i < n` failed."
    assert "autograd engine" in explain(text).general
    assert "CUDA kernel" in explain(text.replace("autograd", "cuda")).general


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("RuntimeError: there are no graph nodes that require computing gradients", "nothing_requires_grad"),
        ("RuntimeError: assigned grad has data of a different size", "grad_of_other_shape"),
        ("RuntimeError: cholesky_cuda: For batch 3: U(12,12) is zero, singular U.", "cholesky_indefinite"),
        ("ValueError: `FlatParameter` requires uniform `requires_grad`", "fsdp_partly_frozen"),
        ("AttributeError: 'SGD' object has no attribute '_amp_stash'", "apex_not_initialized"),
        ("StopIteration: Caught StopIteration in replica 1 on device 1.", "replica_without_parameters"),
    ],
)
def test_old_releases_and_libraries_are_known_in_their_words(text: str, name: str) -> None:
    assert name in names(explain(text))[:1]


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: The size of tensor a (3) must match the size of tensor b (4) at non-singleton dimension 1",
        "IndexError: pop from empty list",
        "IndexError: pop from an empty deque",
        "ValueError: Unexpected keyword arguments: scale",
    ],
)
def test_what_any_program_says_needs_its_surroundings(text: str) -> None:
    assert explain(text).known == "no"


MIXED = (
    "got mixed torch.Tensor and DTensor, need to convert all torch.Tensor to DTensor before calling distributed "
    "operators!"
)
ENGINE = """    loss.backward()
  File "/x/site-packages/torch/_tensor.py", line 648, in backward
    torch.autograd.backward(
  File "/x/site-packages/torch/autograd/graph.py", line 824, in _engine_run_backward
    return Variable._execution_engine.run_backward(  # Calls into the C++ engine to run the backward pass
"""


@pytest.mark.parametrize(
    ("text", "name", "advice"),
    [
        (
            f"""{ENGINE}  File "/x/site-packages/torch/utils/checkpoint.py", line 1513, in recompute_fn
    fn(*args, **kwargs)
aten.mm.default: {MIXED}""",
            "fsdp_two_forwards",
            "one forward",
        ),
        (
            f"""{ENGINE}  File "/home/me/layers.py", line 12, in backward
    return grad_output * torch.ones(3)
RuntimeError: aten.mul.Tensor: {MIXED}""",
            "dtensor_mixed",
            "ones_like",
        ),
        (
            """frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x4d (0x7f78 in /x/libc10.so)
frame #1: c10d::Reducer::mark_variable_ready(unsigned long) + 0x4cd (0x7f79 in /x/libtorch_python.so)
frame #2: torch::autograd::Engine::thread_main(std::shared_ptr<torch::autograd::GraphTask> const&) + 0x451""",
            "ddp_ready_twice",
            "use_reentrant",
        ),
        (
            """  File "/x/site-packages/torch/cuda/amp/autocast_mode.py", line 233, in decorate_bwd
    return bwd(*args, **kwargs)
  File "/x/site-packages/depthwise.py", line 46, in backward
    grad_input = KERNEL.depthwise_backward(
RuntimeError: expected scalar type Half but found Float""",
            "autocast_saved_dtypes",
            "cast_inputs",
        ),
        (
            """  File "/x/site-packages/torch/_functorch/aot_autograd.py", line 1383, in aot_export_module
    fx_g = make_fx(flattened_joint)(*full_args)
RuntimeError: One of the differentiated Tensors appears to not have been used in the graph.""",
            "input_not_used",
            "untie",
        ),
        (
            """  File "/x/python3.6/site-packages/torch/tensor.py", line 102, in backward
    torch.autograd.backward(self, gradient, retain_graph, create_graph)
  File "/x/python3.6/site-packages/torch/autograd/__init__.py", line 90, in backward
    allow_unreachable=True)  # allow_unreachable flag
RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation""",
            "changed_before_versions",
            "inplace=False",
        ),
        (
            """  File "/x/stage.py", line 465, in _retrieve_recv_grads
    recv_infos = self.grad_recv_info[bwd_chunk_id]
KeyError: 0""",
            "pipeline_evaluated_first",
            "training step",
        ),
    ],
)
def test_places_in_libraries_tell_causes_apart(text: str, name: str, advice: str) -> None:
    found = explain(text)
    assert (found.known, found.entries[0].name) in {("yes", name), ("maybe", name)}
    assert advice in " ".join((*found.entries[0].advice, found.entries[0].fix))


def test_a_derivative_that_the_newest_release_has_is_not_said_to_be_none() -> None:
    x = torch.ones(2, requires_grad=True)
    assert x.to_sparse().grad_fn.name().startswith("ToSparse")
    for operator in ("to_sparse", "aten::to_sparse", "aten::nextafter.out"):
        found = explain(f"RuntimeError: derivative for {operator} is not implemented").entries[0]
        assert (found.name, found.change) == ("derivative_missing", "Update torch.")
    assert not explain("RuntimeError: derivative for aten::heaviside is not implemented").entries[0].special


def test_the_derivatives_of_this_torch_are_computed_from_its_formulas() -> None:
    """What the index says that torch has, runs backward; what it says that torch lacks, raises the message."""
    a = torch.eye(3, dtype=torch.float64) + 0.1
    for name in ("matrix_exp", "pinverse", "logdet", "cholesky_inverse", "inverse", "msort"):
        found = explain(f"RuntimeError: the derivative for '{name}' is not implemented").entries[0]
        assert (found.name, found.change) == ("derivative_of_input_missing", "Update torch."), name
        x = a.clone().requires_grad_()
        getattr(torch, name)(x).sum().backward()
        assert x.grad is not None
    weight = torch.randn(5, 3, requires_grad=True)
    (grad,) = torch.autograd.grad(
        torch.nn.functional.embedding_bag(torch.tensor([[0, 1]]), weight).square().sum(), weight, create_graph=True
    )
    with pytest.raises(NotImplementedError) as raised:
        grad.square().sum().backward()
    found = explain(f"NotImplementedError: {raised.value}")
    assert (found.known, "2.13 either" in found.entries[0].title) == ("yes", True)
    assert "Update torch" not in found.entries[0].change
    removed = explain("RuntimeError: the derivative for 'symeig' is not implemented").entries[0]
    with pytest.raises(RuntimeError, match="now removed"):
        torch.symeig(a)
    assert "torch.linalg.eigh" in removed.change
    assert not explain("RuntimeError: the derivative for 'igamma: input' is not implemented").entries[0].special


ANOMALY = "torch.autograd.set_detect_anomaly(True)\n"
ITEM = (
    "RuntimeError: vmap: It looks like you're calling .item() on a Tensor. We don't support vmap over calling .item() "
    "on a Tensor, please try to rewrite what you're doing with other operations."
)
LAYOUT = "AssertionError: expected size 128==128, stride 25==1 at dim=1; expected size 5==5, stride 5==640 at dim=2"


@pytest.mark.parametrize(
    ("text", "name", "advice"),
    [
        (f"{ANOMALY}{ITEM}", "item_under_vmap", "check_nan=False"),
        (
            f"{ANOMALY}RuntimeError: Batching rule not implemented for aten::item. We could not generate a fallback.\n"
            "jacobian(f, x, vectorize=True)",
            "batch_met_condition",
            "check_nan=False",
        ),
        (
            f"{LAYOUT}\nError in op: torch.ops.aten.convolution_backward.default",
            "fake_layout_in_kernel",
            "Update torch",
        ),
        (
            "NotImplementedError: aten::nonzero: attempted to run this operator with Meta tensors, but there was no "
            "fake impl or Meta kernel registered for this operator.",
            "defined_meta_without_fake",
            "Update torch",
        ),
        (
            "RuntimeError: Function IndexPutBackward0 returned an invalid gradient at index 1 - got [31, 768] but "
            "expected shape compatible with [30, 768]",
            "gradient_of_builtin_of_other_shape",
            "mask.sum()",
        ),
        (
            "torch.use_deterministic_algorithms(False)\ny = up(x)\ntorch.use_deterministic_algorithms(True)\n"
            "RuntimeError: upsample_bilinear2d_backward_out_cuda does not have a deterministic implementation, but you "
            "set 'torch.use_deterministic_algorithms(True)'. You can use the 'warn_only=True' option",
            "not_deterministic",
            "around backward()",
        ),
        (
            "with torch.backends.cudnn.flags(enabled=False):\n    y = model(x)\ny.sum().backward()\nRuntimeError: "
            "cuDNN error: CUDNN_STATUS_NOT_SUPPORTED. This error may appear if you passed in a non-contiguous input.",
            "cudnn_not_supported",
            "Put backward()",
        ),
        ("NotImplementedError: \"fill_out\" not implemented for 'Float8_e5m2'", "no_kernel_for_dtype", "bfloat16"),
        (
            "RuntimeError: function ScaleBackward returned an incorrect number of gradients (expected 5, got 6)",
            "gradient_missing",
            "surplus",
        ),
        (
            "RuntimeError: derivative for torch_scatter::segment_csr is not implemented",
            "derivative_missing",
            "function of the library",
        ),
        (
            "RuntimeError: derivative for aten::mps_linear_backward is not implemented",
            "second_derivative_missing",
            "on the CPU",
        ),
        (
            "UserWarning: At least one of the inputs that requires gradient is not of double precision floating point. "
            "This check will likely fail if all the inputs are not of double precision floating point.\n"
            "RuntimeError: Jacobian mismatch for output 0 with respect to input 1,",
            "jacobian_imprecise",
            "float64",
        ),
        (
            '  File "server.py", line 228, in evaluate\n    loss = np.sum([x * y for x, y in losses])\n'
            "RuntimeError: Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.",
            "numpy_on_parameter",
            "detach()",
        ),
    ],
)
def test_the_layer_or_the_setting_that_the_text_shows_is_named(text: str, name: str, advice: str) -> None:
    expect_first(text, name, advice)


def test_autocast_keeps_no_weight_of_a_forward_without_gradients_that_a_later_forward_needs() -> None:
    """What the case of autocast's cache says of torch 2.13; its advice helps in any release."""
    layer, x = torch.nn.Linear(2, 1), torch.ones(1, 2)
    for clear in (False, True) if since("2.13") else (True,):
        with torch.autocast("cpu", torch.bfloat16):
            with torch.no_grad():
                layer(x)
            if clear:
                torch.clear_autocast_cache()
            assert layer(x).requires_grad


def test_anomaly_mode_cannot_read_a_batch_of_gradients() -> None:
    """What the advice says of it: without the check for nan, the same call works."""

    def batched() -> torch.Tensor:
        x = torch.ones(2, requires_grad=True)
        return torch.autograd.grad(x.sin(), x, torch.eye(2), is_grads_batched=True)[0]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.autograd.set_detect_anomaly(True), pytest.raises(RuntimeError, match="aten::item"):
            batched()
        with torch.autograd.set_detect_anomaly(True, check_nan=False):
            assert torch.equal(batched(), torch.eye(2) * torch.ones(2).cos())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "torch._dynamo.exc.BackendCompilerFailed: backend='inductor' raised:\nRuntimeError: a leaf Variable that "
            "requires grad is being used in an in-place operation.",
            "without torch.compile",
        ),
        (
            "RuntimeError: The following operation failed in the TorchScript interpreter.\nTraceback of TorchScript "
            "(most recent call last):\nRuntimeError: a leaf Variable that requires grad is being used in an in-place "
            "operation.",
            "PYTORCH_JIT=0",
        ),
    ],
)
def test_a_message_of_eager_mode_is_no_certain_answer_where_another_layer_raised_it(text: str, said: str) -> None:
    found = explain(text)
    assert (found.known, found.entries[0].name) == ("maybe", "leaf_changed")
    assert said in found.note


@pytest.mark.parametrize(
    "text",
    [
        "y.requires_grad_(True)\nU, S, V = torch.svd(y)\nz = U @ torch.diag_embed(S) @ V\nz.sum().backward()",
        "I call requires_grad_ on an input, and after backward the gradient of this input is wrong.",
    ],
)
def test_an_entry_about_the_compiler_needs_a_sign_of_it(text: str) -> None:
    assert not [entry.name for entry in explain(text).entries if entry.group == "compiling"]


@pytest.mark.parametrize(
    "text",
    [
        "SVD backward doesn't deal with multiple zero eigenvalues.\nU, S, V = torch.svd(y)\nU.sum().backward()",
        "The gradient through torch.svd explodes when two singular values are equal.",
        "With repeated eigenvalues the backward of torch.linalg.eigh gives garbage.",
        "I differentiate torch.symeig of a degenerate matrix, and the gradient of the eigenvectors is wrong.",
    ],
)
def test_equal_values_of_a_decomposition_are_known_without_the_word_nan(text: str) -> None:
    assert explain(text).entries[0].name == "nan_in_decomposition"


@pytest.mark.parametrize(
    ("first", "second", "name"),
    [
        ("1x3x20xf32", "1x5x20xf32", "told_device_differs"),
        ("2x8xf16", "8xf32", "mps_types_mixed"),
        ("2x8xf16", "f32", "mps_types_mixed"),
    ],
)
def test_the_types_in_the_message_of_mps_tell_shapes_from_dtypes(first: str, second: str, name: str) -> None:
    found = explain(
        f"""loc("mps_add"("(mpsFileLoc): /x/MPSGraphUtilities.mm":219:0)): error: input types 'tensor<{first}>' and """
        f"'tensor<{second}>' are not broadcast compatible\nLLVM ERROR: Failed to infer result type(s)."
    )
    assert found.entries[0].name == name


def test_an_error_line_of_the_preprocessor_is_an_error_message() -> None:
    found = explain("#if __CUDA_ARCH__ <= 800\n#else\n#error Unknown __CUDA_ARCH__; please define parameters\n#endif")
    assert found.known == "no"
    assert "``#error``" in found.general


AVAILABLE = "is only available for these backends: [CPU, MPS, SparseCPU, NestedTensorCPU, Meta, BackendSelect]"


@pytest.mark.parametrize(
    ("operator", "backend", "name"),
    [
        ("aten::_foo_backward", "CUDA", "no_kernel_of_torch"),
        ("aten::foo.out", "CPU", "no_kernel_of_torch"),
        ("aten::_foo_backward", "NestedTensorCUDA", "no_backward_for_nested"),
        ("aten::foo", "SparseCUDA", "no_kernel_for_sparse"),
        ("mylib::foo", "CUDA", "no_kernel_for_backend"),
    ],
)
def test_the_backend_without_a_kernel_decides_and_not_those_that_have_one(
    operator: str, backend: str, name: str
) -> None:
    found = explain(
        f"NotImplementedError: Could not run '{operator}' with arguments from the '{backend}' backend. This could be "
        "because the operator doesn't exist for this backend, or was omitted during the selective/custom build process "
        f"(if using custom build). '{operator}' {AVAILABLE}"
    )
    assert (found.known == "no", found.entries[0].name) == (False, name)


def test_an_operator_of_torch_without_a_kernel_here_is_known() -> None:
    x = torch.ones(2, 2)
    with pytest.raises(NotImplementedError) as raised:
        torch.ops.aten._thnn_fused_gru_cell(x, x, x)
    assert explain(f"NotImplementedError: {raised.value}").entries[0].name == "no_kernel_of_torch"


def test_anomaly_mode_for_the_backward_only_cannot_name_the_line() -> None:
    y = torch.tensor([-1.0], requires_grad=True).sqrt()
    with (
        torch.autograd.set_detect_anomaly(True),
        pytest.warns(UserWarning, match="No forward pass information") as warned,
        contextlib.suppress(RuntimeError),
    ):
        y.backward()
    found = explain(f"UserWarning: {warned.list[0].message}")
    assert (found.known, found.entries[0].name) == ("yes", "anomaly_off_in_forward")


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="oneDNN is the library of which it asks")
def test_the_setting_when_backward_runs_decides_which_kernel_a_convolution_takes() -> None:
    """What the advice says of cuDNN, with the library that takes its place on the CPU."""
    layer, x = torch.nn.Conv2d(8, 8, 3), torch.randn(4, 8, 32, 32, requires_grad=True)
    taken = []
    for enabled in (True, False):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with torch.backends.mkldnn.flags(enabled=not enabled):
                y = layer(x)
            with torch.backends.mkldnn.flags(enabled=enabled), torch.profiler.profile() as profile:
                y.sum().backward()
        taken.append(any("slow_conv2d_backward" in each.key for each in profile.key_averages()))
    assert taken == [False, True]


@pytest.mark.parametrize("line", ["y = x.prod(-1)", "w = weights.prod(-1)  # under jacrev"])
def test_an_operation_of_torch_that_reads_a_value_is_named_as_a_cause(line: str) -> None:
    found = explain(f"{line}\n{ITEM}")
    assert "Update torch" in found.entries[0].change
    assert torch.func.jacrev(lambda x: x.prod(-1))(torch.zeros(3, 4)).shape == (3, 3, 4)
    assert any("operation of PyTorch" in other.tell for other in explain(ITEM).entries[0].others)


def test_the_beginning_of_a_place_may_be_cut_off() -> None:
    found = explain(
        'site-packages/torch/skip/portal.py", line 228, in backward\n    assert portal.grad is not None\nAssertionError'
    )
    assert found.place is None or found.place.function == "backward"
    assert "None" in found.message
    assert "p.grad" in found.general


@pytest.mark.parametrize(
    "status", ["EXECUTION_FAILED", "EXECUTION_FAILED_CUDART", "INTERNAL_ERROR_HOST_ALLOCATION_FAILED"]
)
def test_what_cudnn_9_says_behind_its_status_is_no_matter(status: str) -> None:
    found = explain(f"RuntimeError: cuDNN error: CUDNN_STATUS_{status}")
    assert (found.known, found.entries[0].name) == ("yes", "library_execution_failed")


@pytest.mark.parametrize("backend", ["SparseMPS", "SparseCUDA", "QuantizedCUDA", "MkldnnCPU", "SparseCUDATensorId"])
def test_the_name_of_a_backend_is_a_variable(backend: str) -> None:
    found = explain(f"NotImplementedError: Could not run 'aten::cos' with arguments from the '{backend}' backend.")
    assert found.entries[0].name == f"no_kernel_for_{'quantized' if 'Quantized' in backend else 'sparse'}"


def test_a_gradient_within_torchscript_is_no_forward() -> None:
    found = explain(
        'Traceback of TorchScript (most recent call last):\n  File "model.py", line 254, in forward\n'
        "            dy = grad(\n                 ~~~~ <--- HERE\n                [y],\n"
        "RuntimeError: The size of tensor a (128) must match the size of tensor b (3) at non-singleton dimension 3"
    )
    assert found.general.startswith("TorchScript")


def test_who_wrote_in_place_into_a_result_is_found_as_the_entry_says() -> None:
    told = index()["result_changed"]
    saving_their_output = ["relu", "exp", "tanh", "sigmoid", "softmax", "sqrt"]
    assert all(f"``{name}``" in told.cause for name in saving_their_output)
    for name in saving_their_output:
        x = torch.rand(3, requires_grad=True)
        y = getattr(torch, name)(x, *([0] if name == "softmax" else []))
        assert y._version == 0
        y += 1
        assert y._version == 1
        with pytest.raises(RuntimeError, match=f"(?i)inplace operation.* output 0 of {name}"):
            y.sum().backward()
    assert "``y._version``" in told.fix
    assert "set_detect_anomaly" in told.fix
    with torch.autograd.set_detect_anomaly(True), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        y = torch.relu(torch.rand(3, requires_grad=True))
        y += 1
        with pytest.raises(RuntimeError, match="inplace operation"):
            y.sum().backward()
    assert any("y = torch.relu(" in str(each.message) for each in caught)


def test_what_entries_say_of_the_newest_release_is_so() -> None:
    class Halved(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.ones(2))

        def forward(self, x):
            with torch.no_grad():
                self.weight.div_(2)
            return x + self.weight

    torch.export.export(Halved(), (torch.ones(2),))  # leaf_changed, where the model is exported

    class Product(torch.autograd.Function):  # bwd_without_fwd, with setup_context
        @staticmethod
        def forward(x, weight):
            return x @ weight

        @staticmethod
        def setup_context(ctx, inputs, output):
            ctx.save_for_backward(*inputs)
            ctx.autocast = torch.is_autocast_enabled(inputs[0].device.type)

        @staticmethod
        def backward(ctx, grad_output):
            x, weight = ctx.saved_tensors
            with torch.autocast(grad_output.device.type, enabled=ctx.autocast):
                return grad_output @ weight.mT, x.mT @ grad_output

    x, weight = (torch.randn(3, 3, requires_grad=True) for _ in range(2))
    with torch.autocast("cpu"):
        y = Product.apply(x, weight)
    y.sum().backward()
    assert (y.dtype, x.grad.dtype) == (torch.bfloat16, torch.float32)


def test_patterns_mean_the_same_to_every_browser() -> None:
    """A change of flags within a pattern is one of Python, and of the newest browsers."""
    assert not re.findall(r"\(\?-?[a-z]+[:)][^\"]{0,40}", INDEX.read_text(encoding="utf-8"))


# --- families: what a layer says in many wordings that have one remedy ---


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("torch._dynamo.exc.Unsupported: hasattr ConstDictVariable to", "compiled_untraceable"),
        ("Unsupported: call_function UserDefinedClassVariable() [] {}", "compiled_untraceable"),
        (
            "torch._dynamo.exc.InternalTorchDynamoError: 'NoneType' object has no attribute 'x'",
            "compiler_failed_inside",
        ),
        ("torch._inductor.exc.LoweringException: NoValidChoicesError: No choices to select", "compiler_failed_inside"),
        (
            "loss.backward()\nRuntimeError: The following operation failed in the TorchScript interpreter.\n"
            'RuntimeError: left >= 0 INTERNAL ASSERT FAILED at "/x/torch/csrc/jit/codegen/cuda/y.cpp":7',
            "scripted_code_failed",
        ),
        (
            'triton.compiler.errors.CompilationError: at 7:4: ValueError("frobnicate of a block")',
            "triton_kernel_line_refused",
        ),
        ("triton.compiler.errors.UnsupportedLanguageConstruct: at 5:4: Continue", "triton_kernel_line_refused"),
        (
            "IndexError: list index out of range\n"
            '  File "/env/torch/_dynamo/compiled_autograd.py", line 340, in wrapper\n    return compiled_fn(inputs)',
            "compiled_autograd_failed",
        ),
        ("SystemError: <built-in method x> returned NULL without setting an exception", "exception_lost_in_cpp"),
        ("AttributeError: module 'torch.library' has no attribute 'custom_op'", "name_of_another_release"),
        ("ModuleNotFoundError: No module named 'functorch'", "name_of_another_release"),
        ("TypeError: grad() got an unexpected keyword argument 'materialize_grads'", "name_of_another_release"),
        ('scale.cpp:9: error: identifier "AT_CHECK" is undefined', "extension_uses_removed_api"),
        ("fatal error: THC/THC.h: No such file or directory", "extension_uses_removed_api"),
        ("ModuleNotFoundError: No module named 'mmdet3d.ops.voxel_ext._ext'", "extension_module_missing"),
    ],
)
def test_what_a_layer_says_of_anything_has_the_remedy_of_the_layer(text: str, name: str) -> None:
    found = explain(text)
    assert (found.known, names(found)[0]) == ("maybe", name)


def test_a_message_that_is_known_comes_before_its_family() -> None:
    known = explain("torch._dynamo.exc.Unsupported: call_function AutogradFunctionVariable() [] {}")
    assert (known.known, names(known)) == ("yes", ["compiled_instance"])
    reason = "Input shapes should have M >= 16, N >= 16 and K >= 16"
    dot = f"triton.compiler.errors.CompilationError: at 9:1: AssertionError('{reason}')"
    assert names(explain(dot))[0] in ("triton_dot_too_small", "triton_block_not_allowed")


def test_every_break_of_a_graph_that_torch_knows_is_answered() -> None:
    """Each construct that the compiler of the installed torch refuses, in the words of its registry."""
    path = Path(torch.__file__).parent / "_dynamo" / "graph_break_registry.json"
    unknown = []
    for rows in json.loads(path.read_text(encoding="utf-8")).values():
        kind, why, hints = (rows[0][field] for field in ("Gb_type", "Explanation", "Hints"))
        lines = [
            f"torch._dynamo.exc.Unsupported: {kind}",
            f"  Explanation: {why}",
            *(f"  Hint: {hint}" for hint in hints),
        ]
        found = explain(re.sub(r"\{[^{}]*\}", "thing", "\n".join(lines)))
        if found.known == "no":
            unknown.append(kind)
    assert not unknown


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        (GRADIENT.format("Sum", "0").replace("got [2]", "got [0]"), "GatheredParameters"),
        ("RuntimeError: Error building extension 'scale': ld: cannot find -lcudart", "libcudart"),
        (
            "RuntimeError: Error building extension 'scale': unsupported GNU version! gcc versions later than 8",
            "CXX=g++",
        ),
        ("AttributeError: module 'torch.amp' has no attribute 'custom_fwd'", "torch.cuda.amp"),
        (
            GRADIENT.format("Clone", "0").replace("[2]", "[3, j3]").replace("[3]", "[3, j2]"),
            "nested_tensor_from_jagged",
        ),
        ("Could not guard on data-dependent expression Eq(96*u6, 0) (unhinted: Eq(96*u6, 0))", "torch._check"),
        ("AttributeError: 'AddmmBackward' object has no attribute 'previous_functions'", "next_functions"),
    ],
)
def test_what_a_family_has_in_common_is_not_said_where_more_is_known(text: str, advice: str) -> None:
    found = explain(text)
    assert found.known != "no"
    assert advice in " ".join(found.entries[0].advice)


def test_an_attribute_of_a_built_in_node_is_none_that_forward_forgot() -> None:
    assert "attribute_not_set" not in names(explain("AttributeError: 'ConvNdBackward' object has no attribute 'x'"))
    assert names(explain("AttributeError: 'FunctionCtx' object has no attribute 'slope'"))[0] == "attribute_not_set"


@pytest.mark.parametrize(
    "pair",
    [
        ("compiled_requires_grad", "compiled_leaf_returned"),
        ("triton_got_cpu_tensor", "triton_on_other_device"),
        ("ctx_not_taken", "setup_context_without_output"),
        ("compiled_clock", "compiled_warning"),
    ],
)
def test_entries_that_share_a_former_wording_ask_what_separates_them(pair: tuple[str, str]) -> None:
    stored = {each["name"]: each for each in matcher().entries}
    shared = [{lead for lead, *_ in stored[name]["wordings"]} for name in pair]
    assert shared[0] & shared[1]
    told = [index()[name].tell for name in pair]
    assert any(told)
    assert told[0] != told[1]


def test_a_message_without_a_word_is_compared_by_its_type() -> None:
    rules = matcher().rules["tokens"]
    assert list(word_by_word("AssertionError", "", [], rules)) == [("assertionerror", "")]


def test_the_lines_of_a_process_that_are_joined_to_one_are_read_apart() -> None:
    lines = [
        "[rank0]: Traceback (most recent call last):",
        '[rank0]:   File "/env/torch/distributed/pipelining/_backward.py", line 52, in extract_tensors_with_grads',
        "[rank0]:     assert len(output_val) == len(grad_val)",
        "[rank0]: AssertionError",
    ]
    apart, joined = explain("\n".join(lines)), explain(" ".join(lines))
    assert (joined.known, names(joined)) == (apart.known, names(apart)) == ("yes", ["stage_of_more_outputs"])


def test_a_condition_about_strides_is_known_by_any_names_and_another_one_is_explained() -> None:
    check = "RuntimeError: Expected {} to be true, but got false.  (Could this error message be improved?)"
    for condition in ("dout_seq_stride == out_seq_stride", "dout.is_contiguous()", "q.stride(-1) == 1"):
        assert names(explain(check.format(condition)))[0] == "extension_not_contiguous"
    other = explain(check.format("x.size(0) == y.size(0)"))
    assert other.known == "no"
    assert "are its condition" in (other.general or "")


def test_an_operand_that_overlaps_the_result_is_told_from_an_expanded_one() -> None:
    x = torch.arange(4.0)
    with pytest.raises(RuntimeError) as partly:
        x[1:] += x[:-1]
    with pytest.raises(RuntimeError) as expanded:
        torch.zeros(1).expand(3).add_(1)
    found = [explain(f"RuntimeError: {raised.value}") for raised in (partly, expanded)]
    assert [(each.known, names(each)) for each in found] == [
        ("yes", ["operands_overlap"]),
        ("yes", ["expanded_in_place"]),
    ]
    x[1:] += x[:-1].clone()
    mask = torch.tensor([True, False, True])
    mask[mask.clone()] = torch.tensor([True, False])
    assert mask.tolist() == [True, False, False]


def test_an_operator_that_the_exporter_lacks_is_told_from_a_function_without_symbolic() -> None:
    lacking, unknown = (
        torch.onnx.errors.UnsupportedOperatorError(name, 17, None) for name in ("aten::fft_rfft2", "mine::scale")
    )
    function = torch.onnx.errors.UnsupportedOperatorError("prim::PythonOp", 17, None)
    found = [explain(f"torch.onnx.errors.UnsupportedOperatorError: {each}") for each in (lacking, unknown, function)]
    assert [names(each) for each in found] == [["onnx_operator_missing"]] * 2 + [["onnx_python_operator"]]
    assert names(explain("ONNX export failed: Couldn't export operator aten::floor")) == ["onnx_operator_missing"]
    assert all("ONNX" in (each.general or "") for each in found)
    newer = explain("No ONNX function found for <function sym_not at 0x7851>. Failure message: No decompositions")
    assert names(newer) == ["onnx_operator_missing"]


def test_the_list_of_recomputed_tensors_is_known_without_its_sentence() -> None:
    line = "{} metadata: {{'shape': torch.Size([{}]), 'dtype': torch.bfloat16, 'device': device(type='xpu', index=1)}}"
    pasted = lambda saved, again: f"{line.format('saved', saved)}\n{line.format('recomputed', again)}"  # noqa: E731
    assert names(explain(f"{pasted('99, 5120', '98, 5120')}\ntensor at position 49:")) == [
        "recomputation_in_other_shape"
    ]
    assert names(explain(pasted("128", "0")))[0] == "zero3_recomputed_partitioned"


def test_a_message_alone_does_not_prove_that_it_is_from_a_forward() -> None:
    for text in (
        "RuntimeError: The size of tensor a (8) must match the size of tensor b (4) at non-singleton dimension 1",
        "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!",
    ):
        found = explain(text)
        assert found.known == "no"
        assert "If it is in a backward" in (found.general or "")
    own = f"{text}\n grad = grad_output @ ctx.table"
    assert names(explain(own)) == ["backward_made_on_other_device"]


def test_a_sparse_tensor_is_not_taken_for_one_that_is_not_contiguous() -> None:
    text = "RuntimeError: sparse tensors do not have is_contiguous"
    assert names(explain(text)) == ["sparse_parameter"]
    place = '  File "/env/torch/optim/sparse_adam.py", line 87, in step\n'
    titles = [explain(each).entries[0].title for each in (text, place + text)]
    assert titles[0] != titles[1]
    assert "SparseAdam" in titles[1]


def test_a_failure_while_the_compiler_tries_kernels_is_not_one_of_an_extension() -> None:
    failure = "CUDA error: unspecified launch failure"
    titles = [
        explain(text).entries[0].title
        for text in (
            f"RuntimeError: {failure}",
            "E1017 15:14:02.287000 11462 torch/_inductor/select_algorithm.py:3255] [1/0] Runtime error during "
            f"autotuning:\nE1017 15:14:02.287000 11462 torch/_inductor/select_algorithm.py:3255] [1/0] {failure}",
        )
    ]
    assert "invalid memory access" in titles[0]
    assert "configuration" in titles[1]


def test_integers_that_require_grad_are_not_about_complex_numbers() -> None:
    with pytest.raises(RuntimeError) as raised:
        torch.nn.Parameter(torch.ones(2, dtype=torch.int8))
    assert "complex" in str(raised.value)
    assert "complex" not in (explain(f"RuntimeError: {raised.value}").general or "")


def test_the_older_words_about_the_outputs_of_operators_are_known() -> None:
    found = explain(
        "Tensors returned from custom ops (1) must not be inputs to the custom op and (2) may not alias any inputs "
        "or other returns. Offending op: flash_attn_bwd"
    )
    assert (found.known, names(found)) == ("yes", ["output_is_input"])


IN_BACKWARD = f'{ENGINE}  File "/home/me/ops.py", line 31, in backward\n    grad_x = g @ w\n'
STEP = '  File "/x/site-packages/torch/optim/adam.py", line 420, in _single_tensor_adam\n    x.lerp_(grad, 1 - beta)\n'
FOREIGN = {
    "stack": "RuntimeError: stack expects a non-empty TensorList",
    "cat": "TypeError: expected Tensor as element 0 in argument 0, but got NoneType",
    "resize": "RuntimeError: Trying to resize storage that is not resizable",
    "sum": "RuntimeError: add(sparse, dense) is not supported. Use add(dense, sparse) instead.",
    "layout": "RuntimeError: unsupported tensor layout: Sparse",
    "weight": "RuntimeError: 'weight' must be 2-D",
    "lerp": "RuntimeError: expected dtype float for `end` but got dtype double",
    "break": "torch._dynamo.exc.Unsupported: Reconstruction failure",
    "strides": "RuntimeError: Sparse CSR tensors do not have strides",
}


@pytest.mark.parametrize("text", FOREIGN.values(), ids=FOREIGN)
def test_a_message_that_other_code_raises_as_well_is_not_taken_for_the_cause_of_the_index(text: str) -> None:
    found = explain(text)
    assert found.known == "maybe"
    assert len(found.entries) == 1
    assert found.entries[0].tell


@pytest.mark.parametrize(
    ("text", "name", "known"),
    [
        (f"total = torch.stack([p.grad.norm() for p in ps])\n{FOREIGN['stack']}", "norm_of_nothing", "yes"),
        (f"flat = torch.cat([p.grad.view(-1) for p in ps])\n{FOREIGN['cat']}", "gradients_none_joined", "yes"),
        (f"{STEP}{FOREIGN['lerp']}", "dtype_changed_after_step", "yes"),
        (f"The model is wrapped in FSDP\n{FOREIGN['weight']}", "sharded_weight_outside", "yes"),
        (f"{FOREIGN['break']}\n  Explanation: RemovableHandleVariable()", "compiled_hook_handle", "yes"),
        (f"jacobian = torch.func.jacrev(f)(w)\n{FOREIGN['strides']}", "csr_under_transform", "yes"),
        (f"{IN_FORWARD}{FOREIGN['strides']}", "csr_under_transform", "yes"),
        (f"{IN_FORWARD}{FOREIGN['layout']}", "sparse_layout_in_optimizer", "maybe"),
    ],
)
def test_what_shows_the_cause_decides_about_such_a_message(text: str, name: str, known: str) -> None:
    found = explain(text)
    assert (found.known, names(found)) == (known, [name])


def test_where_the_cause_of_the_index_is_not_the_readers_general_advice_follows(capsys) -> None:
    said = squeezed(told_of(FOREIGN["stack"], capsys))
    assert "How to tell: The list is made of gradients" in said
    assert "Otherwise: A list of tensors is empty." in said
    assert "Otherwise:" not in told_of(f"clip_grad_norm_\n{FOREIGN['stack']}", capsys)


def test_an_entry_that_must_be_shown_asks_what_shows_it() -> None:
    asking = [stored["name"] for stored in matcher().entries if "shown_by" in stored]
    assert len(asking) > 20
    assert all(index()[name].tell for name in asking)


@slow
def test_an_entry_that_must_be_shown_is_shown_by_its_own_traceback() -> None:
    asking = [stored["name"] for stored in matcher().entries if "shown_by" in stored]
    found = {name: explain(traceback_of(name)) for name in asking if name in PROGRAMS}
    assert not [name for name, f in found.items() if name not in names(f)]
    assert [f.known for f in found.values()].count("yes") >= 0.85 * len(found)


@pytest.mark.parametrize(
    "message",
    [
        "mat1 and mat2 shapes cannot be multiplied (4x3 and 4x3)",
        "size mismatch, m1: [4 x 3], m2: [4 x 3] at /pytorch/aten/src/THC/generic/THCTensorMathBlas.cu:290",
        "The expanded size of the tensor (3) must match the existing size (4) at non-singleton dimension 0.",
    ],
)
def test_shapes_that_do_not_fit_are_no_dtypes_and_no_blocks_of_a_kernel(message: str) -> None:
    inside = explain(f"{IN_BACKWARD}RuntimeError: {message}")
    assert (inside.known, names(inside)) == ("yes", ["backward_shapes_differ"])
    for text in (message, f"{IN_FORWARD}RuntimeError: {message}"):
        found = explain(text)
        assert (found.known, found.entries) == ("no", ())
        assert "shapes do not fit" in found.general


def test_integers_in_a_backward_are_not_said_to_come_from_autocast() -> None:
    found = explain(f"{IN_BACKWARD}RuntimeError: expected scalar type Long but found Float")
    assert "autocast_saved_dtypes" not in names(found)
    assert names(explain(f"{IN_BACKWARD}RuntimeError: expected scalar type Half but found Float")) == [
        "autocast_saved_dtypes"
    ]


@pytest.mark.parametrize(
    "message",
    [
        "ValueError: not enough values to unpack (expected 3, got 2)",
        "ValueError: too many values to unpack (expected 2)",
        "TypeError: unsupported operand type(s) for *: 'NoneType' and 'Tensor'",
        "TypeError: only integer tensors of a single element can be converted to an index",
        "AttributeError: 'tuple' object has no attribute 'size'",
    ],
)
def test_what_python_says_in_an_optimizer_is_not_about_a_function(message: str) -> None:
    assert explain(f'File "train.py", line 9, in fit\n    optimizer.step()\n{STEP}{message}').known != "yes"
    assert explain(f"{IN_BACKWARD}{message}").known == "yes"


def test_losses_of_several_gpus_are_told_from_one_that_was_not_reduced(capsys) -> None:
    gathered = "UserWarning: Was asked to gather along dimension 0, but all input tensors were scalars"
    found = explain(f"functions.py:65: {gathered}\n{ENGINE}{MESSAGE}")
    assert (found.known, names(found)) == ("yes", ["data_parallel_losses"])
    assert names(explain(f"{MESSAGE}, but it works with a single GPU"))[0] == "data_parallel_losses"
    assert "nn.DataParallel" in told_of(MESSAGE, capsys)


def test_pythons_own_folder_on_windows_is_not_the_readers_code() -> None:
    for folder in (r"C:\conda\envs\yolo\lib", r"C:\Users\me\AppData\Local\Programs\Python\Python311\Lib"):
        own = '  File "train.py", line 4, in fit\n    ema = copy.deepcopy(model)\n'
        inner = f'  File "{folder}\\copy.py", line 172, in deepcopy\n    y = _reconstruct(x, memo, *rv)\n'
        found = explain(f"{own}{inner}{MESSAGE}")
        assert found.place is not None
        assert found.place.file == "train.py"


def test_no_name_in_prose_is_a_link_of_rst() -> None:
    """Such as ``norm_`` without its marks of code: the page would link it to a target that is not there."""
    target = re.compile(r"""(?<![\w`])[^\W_]+(?:[-._+:][^\W_]+)*__?(?=[\s'")\]}>\-/\\:.,;!?]|$)""")
    fields = "tell", "harmless", "borrowed", "change", "cause", "fix"
    links = {
        (entry.name, field): found[0]
        for entry in entries()
        for part in (entry, *entry.cases)
        for field in fields
        if (found := target.search(re.sub("``.*?``", "", getattr(part, field, ""))))
    }
    assert not links


def test_a_view_that_a_library_changes_below_a_hook_is_not_its_function() -> None:
    text = "Output 0 of BackwardHookFunctionBackward is a view and is being modified inplace. This view was created"
    place = (
        '  File "/x/site-packages/torchvision/models/densenet.py", line 217, in forward\n    F.relu(x, inplace=True)\n'
    )
    found = explain(f"{place}RuntimeError: {text}")
    assert (names(found), found.note) == (["hooked_module_then_in_place"], "")


@pytest.mark.parametrize(
    "text",
    [
        "Fatal error: JVP does not exist. Differential-first differentiation APIs are experimental",
        "ValueError: [Primitive::vjp] Not implemented for ArgSort.",
        "  File '/x/site-packages/mlx/nn/utils.py'\n  y = mlx.core.value_and_grad(f)(x)\nValueError: wrong argument",
    ],
)
def test_more_frameworks_are_out_of_scope(text: str) -> None:
    found = explain(text)
    assert (found.known, found.entries) == ("no", ())
    assert "another framework" in found.general


def test_a_copy_made_in_the_call_of_grad_is_named() -> None:
    w = torch.randn(3, requires_grad=True)
    loss = w.square().sum()
    with pytest.raises(RuntimeError) as raised:
        torch.autograd.grad(loss, w.clone())
    found = explain(f"g = torch.autograd.grad(loss, w.clone())\nRuntimeError: {raised.value}")
    assert (found.known, names(found)) == ("yes", ["input_not_used"])
    assert "copy that it makes itself" in found.entries[0].tell
    assert torch.equal(torch.autograd.grad(loss, w)[0], 2 * w)


def test_what_is_said_of_compressed_tensors_and_of_batches_in_shared_memory_is_so() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the layout is in beta
        matrix = torch.eye(3).to_sparse_csr()
    for operation in (torch.Tensor.stride, lambda m: m.unsqueeze(0)):
        with pytest.raises(RuntimeError, match="do not have strides"):
            operation(matrix)
    assert (matrix @ torch.ones(3)).tolist() == [1.0] * 3
    assert matrix.sin().layout == torch.sparse_csr
    assert matrix.to_dense().stride() == (3, 1)
    values = torch.ones(3, requires_grad=True)  # in torch 2.0 and older, the matrix had no graph
    made = torch.sparse_csr_tensor(matrix.crow_indices(), matrix.col_indices(), values, (3, 3), check_invariants=True)
    indices = torch.arange(3).expand(2, 3)
    for graph in (made, torch.sparse_coo_tensor(indices, values, (3, 3), check_invariants=True).to_sparse_csr()):
        assert torch.autograd.grad((graph @ torch.ones(3, 1)).sum(), values)[0].tolist() == [1.0] * 3
    samples = [torch.zeros(4), torch.zeros(2)]
    for workers, said in ((1, "not resizable"), (0, "at entry 0")):
        loader = torch.utils.data.DataLoader(samples, batch_size=2, num_workers=workers)
        with pytest.raises(RuntimeError, match=said):
            next(iter(loader))


@pytest.mark.parametrize(
    ("text", "known", "name", "advice"),
    [
        (
            f"{ENGINE}RuntimeError: view size is not compatible with input tensor's size and stride (at least one "
            "dimension spans across two contiguous subspaces). Use .reshape(...) instead.",
            "maybe",
            "grad_output_viewed",
            ".contiguous() where the forward permutes",
        ),
        (
            "RuntimeError: Not compiled with CUDA support",
            "yes",
            "extension_without_gpu_code",
            "FORCE_CUDA",
        ),
        (
            '  File "/x/site-packages/torch/utils/hooks.py", line 141, in _apply_on_tensors\n'
            "    if not grad_fn.name() == 'BackwardHookFunctionBackward':\n"
            "AttributeError: 'NoneType' object has no attribute 'name'",
            "yes",
            "module_hook_first_input",
            "Update torch to 1.9",
        ),
    ],
)
def test_the_layer_that_raised_decides_the_advice(text: str, known: str, name: str, advice: str) -> None:
    found = explain(text)
    assert (found.known, names(found)) == (known, [name])
    assert advice in found.entries[0].change


def test_sources_that_do_not_compile_are_not_about_strides() -> None:
    text = "utils.h:17:5: error: 'AT_CHECK' was not declared in this scope\n   AT_CHECK(x.is_contiguous());"
    assert "extension_not_contiguous" not in names(explain(text))


@pytest.mark.parametrize(
    ("text", "name", "advice"),
    [
        ("TypeError: apply() takes no keyword arguments", "apply_without_keywords", "by position"),
        ("TypeError: Quantize.apply() takes no keyword arguments", "apply_without_keywords", "by position"),
        ("TypeError: unbound method backward() must be called", "backward_unbound", "@staticmethod"),
        (
            "We train with --fp16. Function 'LogSoftmaxBackward0' returned nan values in its 0th output.",
            "nan_in_softmax",
            "logits.float()",
        ),
    ],
)
def test_what_older_releases_and_half_precision_add_is_known(text: str, name: str, advice: str) -> None:
    found = explain(text)
    assert names(found)[0] == name
    assert advice in found.entries[0].change


def test_saved_tensors_that_a_transform_of_forward_mode_misses_are_told_from_those_never_saved() -> None:
    text = (
        '  File "bug.py", line 52\n    print(hessian(f)(x))\n'
        '  File "/x/site-packages/torch/_functorch/eager_transforms.py", line 1130, in push_jvp\n'
        "    output = _jvp_with_argnums(func, args, basis)\n"
        "ValueError: not enough values to unpack (expected 1, got 0)"
    )
    assert names(explain(text))[0] == "saved_for_backward_only"


def test_what_is_said_of_keywords_and_of_scores_in_half_precision_is_so() -> None:
    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor):
            return x * factor

        @staticmethod
        def backward(ctx, grad_output):
            return grad_output, None

    if torch.__version__ >= "2.13":
        assert Scale.apply(torch.ones(2), factor=3.0).tolist() == [3.0, 3.0]
    overflowed = torch.tensor([70000.0, 0.0]).half()
    assert overflowed[0].isinf()
    assert overflowed.softmax(0).isnan().any()


@pytest.mark.parametrize(
    ("text", "known", "found_names"),
    [
        ("AttributeError: 'str' object has no attribute 'backward'", "yes", ["loss_is_tuple"]),
        ("RuntimeError: value cannot be converted to type at::Half without overflow", "yes", ["mask_value_too_large"]),
        ("RuntimeError: value cannot be converted to type float without overflow", "maybe", ["mask_value_too_large"]),
    ],
)
def test_the_type_in_a_message_decides_how_certain_its_cause_is(text: str, known: str, found_names: list[str]) -> None:
    found = explain(text)
    assert (found.known, names(found)) == (known, found_names)


def test_a_loss_that_is_a_string_comes_from_a_dictionary_that_was_unpacked() -> None:
    loss, _ = {"loss": torch.ones(()), "logits": torch.ones(3)}
    with pytest.raises(AttributeError) as raised:
        loss.backward()
    assert "dictionary was unpacked" in explain(f"AttributeError: {raised.value}").entries[0].title


def test_arguments_of_another_method_are_not_those_of_a_function() -> None:
    found = explain("TypeError: __init__() takes from 1 to 3 positional arguments but 4 were given")
    assert not {"setup_context_without_output", "grad_outputs_not_taken"} & {*names(found)}


@pytest.mark.parametrize(
    ("text", "name", "advice"),
    [
        (
            "RuntimeError: Mismatch in shape: grad_output[0] has a shape of torch.Size([1]) and output[0] has a shape "
            "of torch.Size([]).",
            "vector_of_other_shape",
            "backward() without a gradient",
        ),
        (
            '    loss.backward()\n......\ntorch/autograd/function.py", line 181, in backward\n'
            "    raise NotImplementedError\nNotImplementedError",
            "backward_missing",
            "",
        ),
        (".backward() stops python run without throwing error", "segmentation_fault", "faulthandler"),
    ],
)
def test_short_texts_lead_to_the_entry_that_they_show(text: str, name: str, advice: str) -> None:
    found = explain(text)
    assert names(found)[0] == name
    assert advice in found.entries[0].change


@pytest.mark.parametrize(
    ("text", "name", "advice"),
    [
        (
            "AttributeError: 'MatmulLtState' object has no attribute 'memory_efficient_backward'",
            "int8_state_of_other_release",
            "-U peft",
        ),
        (
            "AssertionError: The SHAP explanations do not sum up to the model's output! This is "
            "either because of a rounding error or because an operator in your computation graph was "
            "not fully supported.",
            "attribution_module_reused",
            "its own module",
        ),
        (
            "AssertionError: A Module Tanh() was detected that does not contain some of the "
            "input/output attributes that are required for DeepLift computations.",
            "attribution_module_reused",
            "its own module",
        ),
        (
            "NotImplementedError: Extension saving to sqrt_ggn_exact does not have an extension for "
            "Module <class 'net.Scale'>, but it has parameters. Those parameters will not have their field "
            "sqrt_ggn_exact set.",
            "backpack_without_extension",
            "extend(model)",
        ),
        (
            "AssertionError: optimizer.zero_grad() was called after loss.backward() but before "
            "optimizer.step() or optimizer.synchronize().",
            "horovod_zeroed_before_step",
            "before backward()",
        ),
        (
            "AssertionError: Sharpness Aware Minimization requires closure, but it was not provided",
            "sharpness_without_closure",
            "second_step",
        ),
        (
            "NotImplementedError: NF4Tensor dispatch: attempting to run unimplemented "
            "operator/function: func=<OpOverload(op='aten.is_pinned', overload='default')>",
            "quantized_subclass_without_operator",
            "out of the quantization",
        ),
        (
            "NotImplementedError: Model contains a trainable layer that Opacus doesn't currently "
            "support(head:Fold). Please implement and register grad sampler for this layer.",
            "opacus_layer_unsupported",
            "ModuleValidator.fix",
        ),
        (
            'opacus.validators.errors.UnsupportedModuleError: [ShouldReplaceModuleError("BatchNorm '
            "cannot support training with differential privacy.",
            "opacus_layer_unsupported",
            "ModuleValidator.fix",
        ),
        (
            "diffcp.cone_program.SolverError: Solver ecos returned status Infeasible",
            "convex_layer_infeasible",
            "slack",
        ),
        (
            "RuntimeError: You must train on the training inputs!",
            "exact_gp_trained_on_other_inputs",
            "whole tensor",
        ),
        (
            "AssertionError: non-finite values in state `y`: tensor([nan, nan], device='cuda:0')",
            "ode_state_not_finite",
            "torch.isfinite",
        ),
        (
            "ValueError: The loss returned in `training_step` is tensor(nan, device='cuda:0', grad_fn=<DivBackward0>).",
            "trainer_stopped_at_nan",
            "not finite",
        ),
        (
            "FloatingPointError: Loss became infinite or NaN at iteration=7!",
            "trainer_stopped_at_nan",
            "not finite",
        ),
        (
            "ValueError: Detected nan and/or inf values in `encoder.0.bias`. Check your forward pass "
            "for numerically unstable operations.",
            "weights_not_finite",
            "before the step",
        ),
        (
            "RuntimeError: Rank 3, node gpu-12, device 3, iteration 912: Unexpected result nan "
            "(message='found NaN in local forward loss calculation')",
            "megatron_gradient_nan",
            "loss mask",
        ),
        (
            "ValueError: Could not compute gradients for node features. Please make sure that node "
            "features are used inside the model",
            "explainer_mask_without_gradient",
            "MessagePassing",
        ),
        (
            "[rank2]: AssertionError: Invalid: ``_post_backward_hook_state``: "
            "(<torch.utils.hooks.RemovableHandle object at 0x7f1>,)",
            "fsdp_frozen_between_forward_and_backward",
            "between steps",
        ),
        (
            "KeyError: \"A parameter in the optimizer couldn't be switched to its sharded version. "
            'This breaks the training."',
            "optimizer_of_parameters_before_sharding",
            "one call",
        ),
        (
            "Exception: Optimizer was not in train mode when step is called. Please insert .train() "
            "and .eval() calls on the optimizer.",
            "schedule_free_in_eval_mode",
            "optimizer.train()",
        ),
        (
            '  File "/env/site-packages/deepspeed/runtime/zero/stage3.py", line 307, in __init__\n    '
            "largest = max([max(t.numel(), t.ds_numel) for t in group])\nValueError: max() arg is an "
            "empty sequence",
            "zero_group_without_trainable",
            "Remove groups",
        ),
        (
            "ValueError: Gradient+optimizer bit data type combination not supported: grad "
            "torch.float16, optimizer torch.uint8",
            "eight_bit_optimizer_dtype",
            "-U bitsandbytes",
        ),
        (
            "NotImplementedError: Using multiple indexing operations on the same tensor that "
            "requires gradients in a score_mod function is not currently supported.",
            "score_mod_reads_twice",
            "its own copy",
        ),
        (
            "ValueError: Model specification seems incorrect - cannot find valid initial params.",
            "hmc_without_valid_start",
            "log_prob",
        ),
        (
            "RuntimeError: /io/build/ConvTunerSimple_tune_and_cache.cc(103)\n!all_profile_res.empty() "
            "assert faild. can't find suitable algorithm for 2",
            "spconv_without_algorithm",
            "float32",
        ),
        (
            "OptimizationWarning: Optimization failed within `scipy.optimize.minimize` with status 2 "
            "and message ABNORMAL: .",
            "line_search_failed",
            "float64",
        ),
        (
            "RuntimeError: tracing error at step 156: expected the next 4 parameters in the "
            "parameter fetch queue to be ({'id': 12, 'status': 'AVAILABLE'}) but got ()",
            "zero3_order_changed",
            "same order",
        ),
        (
            "RuntimeError: normal expects all elements of std >= 0.0",
            "distribution_of_nan",
            "Print the parameter",
        ),
        (
            "RuntimeError: Function 'CheckpointFunctionBackward' returned nan values in its 0th output.",
            "nan_in_product",
            "without checkpointing",
        ),
    ],
)
def test_what_more_libraries_say_is_known(text: str, name: str, advice: str) -> None:
    expect_first(text, name, advice)


def test_a_failure_of_a_compiled_function_names_what_a_backend_must_return() -> None:
    found = explain(
        "RuntimeError: function CompiledFunctionBackward returned an incorrect number of gradients (expected 3, got 2)"
    )
    assert names(found) == ["gradient_missing"]
    assert "each None included" in found.note


def test_none_in_another_library_is_not_said_to_be_from_deepspeed() -> None:
    frame = '  File "/env/site-packages/{}", line 100, in backward\n    x = grad.view(-1)\n'
    said = "AttributeError: 'NoneType' object has no attribute 'view'"
    assert names(explain(frame.format("deepspeed/runtime/zero/stage3.py") + said)) == ["zero_gradient_absent"]
    assert "zero_gradient_absent" not in names(explain(frame.format("megablocks/layers/moe.py") + said))


@pytest.mark.parametrize(
    ("text", "title"),
    [
        (
            'File "/env/torchcam/methods/gradient.py", line 50, in _hook_g\n'
            "    self.hook_handles.append(output.register_hook(partial(self._store_grad, idx=idx)))\n"
            "RuntimeError: cannot register a hook on a tensor that doesn't require gradient",
            "A tool for heat maps got a forward without gradients",
        ),
        (
            'File "csr.py", line 36, in main\n    b = torch.sparse_csr_tensor(crow, col, w) @ x\n'
            "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn",
            "A sparse CSR tensor was made of values, without their graph",
        ),
        (
            "UserWarning: Error detected in NestedGetValuesBackward0. Traceback of forward call that caused the error:",
            "Anomaly mode stopped at a nested tensor",
        ),
        (
            "RuntimeError: The following operation failed in the TorchScript interpreter.\nRuntimeError: rhs_i >= 0 "
            'INTERNAL ASSERT FAILED at "/pytorch/torch/csrc/jit/codegen/cuda/scheduler/pointwise.cpp":721',
            "nvFuser, the fuser of TorchScript, failed inside",
        ),
    ],
)
def test_what_shows_another_cause_of_a_message_is_its_case(text: str, title: str) -> None:
    assert explain(text).entries[0].title == title


def test_the_second_derivative_of_a_norm_at_zero_is_named() -> None:
    def force(distance):
        x = torch.zeros(3, requires_grad=True)
        return torch.autograd.grad(distance(x) ** 2, x, create_graph=True)[0]

    with (
        pytest.warns(UserWarning, match="forward call") as warned,
        torch.autograd.set_detect_anomaly(True),
        pytest.raises(RuntimeError, match="returned nan") as raised,
    ):
        force(torch.Tensor.norm).square().sum().backward()
    shown = [str(each.message) for each in warned if "forward call" in str(each.message)]
    found = explain("\n".join([*(f"UserWarning: {text}" for text in shown), f"RuntimeError: {raised.value}"]))
    assert (found.known, found.entries[0].title) == ("yes", "The second derivative of a norm is nan at zero")
    # The advice: a number under the root. Its gradient is 0 at zero, and has a finite derivative.
    assert force(lambda d: (d.square().sum() + 1e-6).sqrt()).tolist() == [0.0] * 3
    x = torch.zeros(3, requires_grad=True)
    second = torch.autograd.functional.hessian(lambda d: (d.square().sum() + 1e-6).sqrt(), x)
    assert second.diagonal().tolist() == pytest.approx([1e3] * 3)  # 1 / sqrt(eps)


def test_two_entries_with_the_same_case_are_one_answer() -> None:
    """A step of another optimizer changed a weight: two entries have this message, and share the case of a GAN."""
    changed = CHANGED.partition(", which is")[0] + " is at version 3752; expected version 3751 instead."
    found = explain(f'File "train.py", line 257, in main\n    d_loss.backward()\nRuntimeError: {changed}')
    titles = [entry.title for entry in found.entries]
    assert "In a GAN" in titles[0]
    assert len(set(titles)) == len(titles)


def test_an_entry_that_covers_a_text_is_not_said_to_be_outside_of_the_index() -> None:
    said = "Error: accessing tensor output of CUDAGraphs that has been overwritten by a subsequent run."
    found = explain(f"RuntimeError: {said}")
    assert names(found) == ["cudagraph_overwritten", "cudagraph_grad_overwritten"]
    assert "does not cover" not in found.general


def test_a_loss_without_dimensions_takes_no_gradient_of_one_element() -> None:
    loss = torch.ones(3, requires_grad=True).sum()
    with pytest.raises(RuntimeError, match=r"Mismatch in shape: grad_output\[0\] has a shape of torch.Size\(\[1\]\)"):
        loss.backward(torch.ones(1))
    loss.backward(torch.tensor(2.0))


@pytest.mark.parametrize(
    ("text", "name", "advice"),
    [
        (
            'RuntimeError: false INTERNAL ASSERT FAILED at "/pytorch/c10/core/Scalar.cpp":42, please report a bug to '
            "PyTorch. unknown ivalue tag 4",
            "power_of_bool",
            "a number",
        ),
        (
            'RuntimeError: saved_forINTERNAL ASSERT FAILED at "..\\\\torch\\\\csrc\\\\autograd\\\\saved_variable.cpp"'
            ":133, please report a bug to PyTorch. No grad_fn for non-leaf saved tensor",
            "saved_tensor_detached_in_place",
            "y.detach()",
        ),
        (
            '  File "torch/quantization/fake_quantize.py", line 144, in forward\n'
            "RuntimeError: one of the variables needed for gradient computation has been modified by an inplace "
            "operation: [torch.cuda.FloatTensor [64]] is at version 27; expected version 26 instead.",
            "fake_quantize_used_twice",
            "disable_observer",
        ),
        (
            '  File "torch/quantization/observer.py", line 942, in forward\n    self.histogram.resize_(h.shape)\n'
            "RuntimeError: cannot resize variables that require grad",
            "parameter_resized",
            "observer(x.detach())",
        ),
        (
            "RuntimeError: derivative for dequantize is not implemented",
            "quantized_not_differentiable",
            "fake quantization",
        ),
        ("RuntimeError: derivative for aten::_coalesced_ is not implemented", "coalesced_by_hand", "is_coalesced=True"),
        (
            "AssertionError: Expects `BACKWARD_PRE` or `BACKWARD_POST` state but got HandleTrainingState.FORWARD",
            "fsdp_training_state",
            "outside",
        ),
        (
            "RuntimeError: has_marked_unused_parameters_ INTERNAL ASSERT FAILED at /tmp/pip-req-build-p5q91txh/torch/"
            "csrc/distributed/c10d/reducer.cpp:290, please report a bug to PyTorch.",
            "ddp_ready_twice_unmarked",
            "one backward() for each forward",
        ),
        (
            "lightning_fabric.utilities.exceptions.MisconfigurationException: to use manual_backward, please disable "
            "automatic optimization: set model property `automatic_optimization` as False",
            "lightning_manual_in_automatic",
            "automatic_optimization = False",
        ),
        (
            "ImportError: torch.utils.ffi is deprecated. Please use cpp extensions instead.",
            "extension_by_ffi",
            "cpp_extension",
        ),
        ("ModuleNotFoundError: No module named 'torch.utils.ffi'", "extension_by_ffi", "cpp_extension"),
        (
            "RuntimeError: Expected nested_tensor_impl_is_contiguous(nt_grad_output) to be true, but got false.  "
            "(Could this error message be improved?  If so, please report an enhancement request to PyTorch.)",
            "nested_gradient_not_contiguous",
            "torch.jagged",
        ),
        ("NotImplementedError: aten._is_any_true.default", "anomaly_mode_of_nested", "check_nan=False"),
        (
            "RuntimeError: Function torch::jit::(anonymous namespace)::DifferentiableGraphBackward returned an invalid "
            "gradient at index 0 - got [2, 3, 4, 5] but expected shape compatible with [2, 3, 5]",
            "scripted_gradient_of_other_shape",
            "torch.jit.script",
        ),
        (
            '  File "torch/_inductor/cudagraph_trees.py", line 951, in run\n'
            "    assert data_ptr == new_inputs[idx].data_ptr()\nAssertionError",
            "cudagraph_input_moved",
            "reduce-overhead",
        ),
        (
            '  File "train.py", line 8, in <module>\n    loss.backward()\n'
            "RuntimeError: assigned grad has data of a different size",
            "grad_of_other_shape",
            "without hooks",
        ),
        (
            '  File "/tmp/torchinductor_me/c/call.py", line 120, in call\n'
            "    assert_size_stride(tangents_1, (4, 64), (64, 1))\n"
            "AssertionError: expected size 64==64, stride 16384==1 at dim=1",
            "fake_layout_in_kernel",
            "return y.contiguous()",
        ),
        (
            '  File "/env/site-packages/deepspeed/runtime/zero/stage_1_and_2.py", line 1300, in reduce_grads\n'
            "    new_grad_tensor.copy_(param.grad.view(-1))\n"
            "AttributeError: 'NoneType' object has no attribute 'view'",
            "zero_gradient_absent",
            "use_reentrant=False",
        ),
        (
            '  File "/env/site-packages/deepspeed/runtime/zero/stage3.py", line 1200, in wrapper\n'
            "    grad_acc = param_tmp.grad_fn.next_functions[0][0]\n"
            "AttributeError: 'NoneType' object has no attribute 'next_functions'",
            "zero_hook_without_graph",
            "Update DeepSpeed",
        ),
        (
            "AssertionError: FSDP reduce-scatter expects uniform gradient dtype but got {torch.half, torch.float32}",
            "fsdp_gradient_dtypes",
            "reduce_dtype",
        ),
        (
            "    out, vjp_fn = vjp(f, weights, buffers, x)\n"
            "RuntimeError: only Tensors of floating point dtype can require gradients",
            "integer_argument_of_transform",
            "close over",
        ),
        (
            "RuntimeError: Current operator _foreach_norm do not support internal format.",
            "npu_format_of_foreach",
            "foreach=False",
        ),
        (
            "RuntimeError: /io/build/temp.linux-x86_64-3.9/spconv/build/src/cumm/conv/main/implicit_gemm2.cu(4870)\n"
            "N == input.dim(0) assert faild. error",
            "inverse_convolution_of_other_indices",
            "SubMConv3d",
        ),
        (
            '  File "torch/optim/adamw.py", line 580, in _multi_tensor_adamw\n'
            "    torch._foreach_lerp_(device_exp_avgs, device_grads, 1 - beta1)\n"
            "RuntimeError: output with shape [] doesn't match the broadcast shape [1]",
            "optimizer_state_without_dimension",
            "reshape(1)",
        ),
        (
            "    return InPlace.apply(x, theta)\n"
            'RuntimeError: creation_meta == CreationMeta::DEFAULT INTERNAL ASSERT FAILED at "/torch/variable.cpp":224, '
            "please report a bug to PyTorch.",
            "inplace_function_on_view",
            "clone()",
        ),
        (
            '  File "torch/export/_trace.py", line 1048, in wrapper\n'
            "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn",
            "exported_gradient",
            "make_fx",
        ),
        (
            "MisconfigurationException: When `optimizer.step(closure)` is called, the closure should be callable",
            "lightning_closure_not_callable",
            "closure=closure",
        ),
        (
            '  File "apex/amp/scaler.py", line 176, in unscale_with_stashed\n    out_scale/grads_have_scale,\n'
            "ZeroDivisionError: float division by zero",
            "apex_scale_zero",
            "nan or inf",
        ),
        (
            "NotImplementedError: Do not know how to handle these types to promote:{'HalfTensor','DoubleTensor'}",
            "apex_types_promoted",
            "float32",
        ),
        (
            "RuntimeError: Could not run 'quantized::conv2d_prepack' with arguments from the 'CUDA' backend.",
            "quantized_operator_on_gpu",
            "model.cpu()",
        ),
        (
            "AttributeError: 'CudnnRNN' object has no attribute '_nested_output'",
            "old_cudnn_second_backward",
            "retain_variables",
        ),
        (
            "RuntimeError: CudnnRNN returned an invalid number of gradient tensors (expected 11, but got 4)",
            "old_cudnn_frozen",
            "requires_grad=True",
        ),
    ],
)
def test_observers_trainers_and_old_releases_are_known(text: str, name: str, advice: str) -> None:
    expect_first(text, name, advice)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (
            "AssertionError: Node tangents_2 was invalid, but is output",
            {"effect_in_backward", "tangent_of_subclass_lost"},
        ),
        (
            "RuntimeError: vmap: aten::copy_(self, *extra_args) is not possible because there exists a Tensor 'other' "
            "in extra_args that has more elements than 'self'. This happened due to 'other' being vmapped over but "
            "'self' not being vmapped over. Please try to use out-of-place operators instead of aten::copy_.",
            {"unbatched_in_builtin_backward", "set_item_of_unbatched"},
        ),
        (
            '  File "torch/optim/adamw.py", line 502, in _multi_tensor_adamw\n'
            "    torch._foreach_add_(device_exp_avgs, device_grads, alpha=1 - beta1)\n"
            "RuntimeError: The size of tensor a (8192384) must match the size of tensor b (262156288) at non-singleton "
            "dimension 0",
            {"optimizer_state_of_other_shape", "fsdp_gradient_of_whole"},
        ),
        (
            "MPSNDArray.mm:88: failed assertion `[MPSNDArrayDescriptor sliceDimension:withSubrange:] error: the range "
            "subRange.start + subRange.length does not fit in dimension[2] (2)'",
            {"mps_kernel_assertion"},
        ),
    ],
)
def test_a_message_of_two_causes_is_not_said_to_have_one(text: str, names: set[str]) -> None:
    found = explain(text)
    assert (found.known, {entry.name for entry in found.entries}) == ("maybe", names)


def test_a_function_in_the_extension_of_a_library_is_not_said_to_be_the_readers() -> None:
    found = explain(
        '  File "torchsparse/nn/functional/conv/func/implicit_gemm.pyx", line 160, in '
        "torchsparse.nn.functional.conv.func.implicit_gemm.ImplicitGEMMConvolutionFuntion.backward\n"
        "RuntimeError: shape '[27, 32, 4]' is invalid for input of size 27648"
    )
    assert found.known == "maybe"
    assert "library" in found.note


def test_the_newest_release_exports_a_gradient_and_names_the_view_that_a_function_may_not_change() -> None:
    class Slope(torch.nn.Module):
        def forward(self, x):
            return torch.autograd.grad(x.square().sum(), x)[0]

    exported = torch.export.export(Slope(), (torch.ones(3, requires_grad=True),))
    assert exported.module()(torch.full((3,), 2.0)).tolist() == [4.0, 4.0, 4.0]

    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.mark_dirty(x)
            return x.mul_(2)

        @staticmethod
        def backward(ctx, grad_output):
            return 2 * grad_output

    def parts() -> torch.Tensor:
        return torch.rand(2, 3, requires_grad=True) * 1

    with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
        Doubled.apply(parts().unbind(0)[0])
    Doubled.apply(parts().unbind(0)[0].clone()).sum().backward()
    Doubled.apply(parts()[0]).sum().backward()
    told = index()["inplace_function_on_view"]
    assert "q.clone()" in told.change
    assert "indexing" in told.fix


def test_a_backend_and_a_driver_are_named_where_an_error_may_be_theirs() -> None:
    index_error = "IndexError: Dimension out of range (expected to be in range of [-1, 0], but got 1)"
    assert "device whose backend" in explain(f'loss.backward()\n{index_error}\ndevice = torch.device("mps")').general
    assert "device whose backend" not in explain(f'loss.backward()\n{index_error}\ndevice = "cpu"').general
    assert "environment" in explain("    loss.backward()\nRuntimeError: miopenStatusUnknownError").general


def test_the_search_for_nan_can_be_left_out_of_anomaly_detection() -> None:
    with torch.autograd.set_detect_anomaly(True, check_nan=False), warnings.catch_warnings(action="ignore"):
        x = torch.zeros(1, requires_grad=True)
        (0 * x.sqrt()).sum().backward()
    assert x.grad.isnan().all()


FAILED_IMPORT = (
    'Traceback (most recent call last):\n  File "train.py", line 1, in <module>\n    import torch\n'
    '  File "/opt/conda/lib/python3.10/site-packages/torch/__init__.py", line 367, in <module>\n'
    "    from torch._C import *  # noqa: F403\n"
)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        (f"{FAILED_IMPORT}ImportError: libcudnn.so.9: cannot open shared object file: No such file", "import torch"),
        (f"{FAILED_IMPORT}ImportError: /opt/x/libtorch.so.1: undefined symbol: _ZTIN2at10TensorImplE", "import torch"),
        (f'{FAILED_IMPORT}OSError: [WinError 126] Error loading "C:\\torch\\lib\\fbgemm.dll"', "import torch"),
        ("ImportError: libcupti.so.12: cannot open shared object file: No such file or directory", "library of torch"),
        ("ImportError: /v/torch/lib/libtorch_cpu.so: undefined symbol: iJIT_NotifyEvent", "library of torch"),
        ("AssertionError: \nThe NVIDIA driver on your system is too old (found version 9000).", "driver is missing"),
        ("RuntimeError: CUDA error: CUDA driver version is insufficient for CUDA runtime version", "driver is missing"),
        (
            "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found 11)",
            "driver is missing",
        ),
        (
            "UserWarning: \nNVIDIA GeForce RTX 5090 with CUDA capability sm_120 is not compatible with the current "
            "PyTorch installation.\nThe current PyTorch install supports CUDA capabilities sm_50 sm_60.",
            "not compiled for this GPU",
        ),
        ("RuntimeError: operator torchvision::nms does not exist", "torchvision"),
        (
            "NotImplementedError: Could not run 'torchvision::roi_align' with arguments from the 'CUDA' backend. "
            "'torchvision::roi_align' is only available for these backends: [CPU, AutogradCPU, AutogradCUDA].",
            "torchvision",
        ),
        (
            "RuntimeError: Detected that PyTorch and torchvision were compiled with different CUDA versions. PyTorch "
            "has CUDA Version=12.6 and torchvision has CUDA Version=12.1.",
            "torchvision",
        ),
        (
            "RuntimeError: CUDA error: no kernel image is available for execution on the device (nms_cuda at "
            "/tmp/build/torchvision/csrc/cuda/nms_cuda.cu:127)",
            "torchvision",
        ),
    ],
)
def test_an_installation_that_fails_is_not_about_gradients(text: str, advice: str) -> None:
    found = explain(text)
    assert found.known == "no"
    assert advice in found.general
    assert "no gradient is involved" in found.general


IMPORTED = 'Traceback (most recent call last):\n  File "train.py", line 4, in <module>\n    import scale_cuda\n'


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (f"{IMPORTED}ImportError: libc10.so: cannot open shared object file: No such file", "extension_before_torch"),
        (
            f"{IMPORTED}ImportError: /u/scale_cuda.so: undefined symbol: _ZN3c104cuda9SetDeviceEi",
            "extension_of_other_torch",
        ),
        ("RuntimeError: CUDA error: no kernel image is available (scale.cu:12)", "architecture_not_compiled"),
        (
            "NotImplementedError: Could not run 'mylib::scale' with arguments from the 'CUDA' backend. This could be "
            "because the operator doesn't exist for this backend",
            "no_kernel_for_backend",
        ),
        ("NotImplementedError: Could not run 'torchvision::nms' with arguments from the 'MPS' backend.", ""),
    ],
)
def test_an_extension_of_the_readers_is_not_said_to_be_a_failed_installation(text: str, name: str) -> None:
    found = explain(text)
    assert found.known != "no"
    assert not name or names(found)[0] == name


def test_a_warning_about_the_driver_does_not_hide_what_the_reader_tells() -> None:
    warned = "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11040)."
    told = "My gradient is None after loss.backward(), for all parameters of the model."
    assert "driver is missing" in explain(warned).general
    assert "driver is missing" not in explain(f"{warned}\n\n{told}").general


def test_an_extension_for_cuda_next_to_a_torch_without_it_is_named() -> None:
    found = explain(f"{IMPORTED}ImportError: libtorch_cuda.so: cannot open shared object file: No such file")
    assert "no CUDA" in found.entries[0].title
    libraries = {path.name for path in (Path(torch.__file__).parent / "lib").glob("libtorch_cuda*")}
    assert torch.version.cuda or not libraries


@pytest.mark.parametrize(
    "text",
    [
        "torch._dynamo.exc.Unsupported: call_method GetAttrVariable(AutogradFunctionContextVariable(Swish), "
        "saved_variables) __iter__ () {}",
        "WARNING: speculate_subgraph: while introspecting the user-defined autograd.Function, we were unable to trace "
        "function `trampoline_autograd_bwd` into a single graph.\ntorch._dynamo.exc.Unsupported: call_method "
        "GetAttrVariable(AutogradFunctionContextVariable(Function), saved_variables) __getitem__ () {}",
        "AttributeError: 'SwishBackward' object has no attribute 'saved_variables'",
        "torch._dynamo.exc.InternalTorchDynamoError: AttributeError: 'AutogradFunctionContextVariable' object has no "
        "attribute 'saved_variables'",
        "torch._dynamo.exc.Unsupported: Observed exception\n  Explanation: Dynamo found no exception handler at the "
        "top-level compiled function when encountering an exception.\n\nfrom user code:\n"
        '  File "swish.py", line 12, in backward\n    (x,) = ctx.saved_variables',
    ],
)
def test_saved_variables_are_named_whatever_is_around_the_message(text: str) -> None:
    assert names(explain(text))[0] == "saved_variables_read"


def test_an_error_next_to_saved_variables_is_not_said_to_be_theirs() -> None:
    frame = '  File "m.py", line 9, in backward\n    (x,) = ctx.saved_variables\n'
    later = '  File "m.py", line 10, in backward\n    return grad @ x\nRuntimeError: Function SquareBackward returned '
    found = explain(f"{frame}{later}an invalid gradient at index 0 - got [3, 2] but expected shape [2, 3]")
    assert "saved_variables_read" not in names(found)


def message_of(program) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        program(torch.ones(3))
    return f"{type(caught.value).__name__}: {caught.value}"


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x * x.dim,
        lambda x: x / x.numel,
        lambda x: x.sum(x.dim),
        lambda x: torch.compile(lambda y: y * y.dim, backend="eager", fullgraph=True)(x),
    ],
    ids=["dim", "numel", "argument", "compiled"],
)
def test_a_method_without_parentheses_is_named(program) -> None:
    assert names(explain(message_of(program)))[0] == "method_not_called"


def test_a_method_without_parentheses_is_named_by_older_compilers() -> None:
    said = "torch._dynamo.exc.Unsupported: call_function BuiltinVariable({}) [TensorVariable(), {}] {{}}"
    known = lambda name: names(explain(said.format("mul", f"GetAttrVariable(TensorVariable(), {name})")))  # noqa: E731
    assert known("dim")[0] == known("numel")[0] == "method_not_called"
    assert "method_not_called" not in known("grad")
    of_2_12 = (
        "torch._dynamo.exc.Unsupported: Failed to trace builtin operator\n  Explanation: Dynamo does not know how to "
    )
    of_2_12 += "trace builtin operator `mul` with argument types ['Tensor', '{}'] (has_kwargs False)"
    assert names(explain(of_2_12.format("builtin_function_or_method"))) == ["method_not_called"]
    assert "method_not_called" not in names(explain(of_2_12.format("SomeClass")))


def test_an_empty_sparse_gradient_is_told_from_other_sparse_tensors() -> None:
    said = "RuntimeError: values has incorrect size, expected"
    stepped = explain(f'  File "train.py", line 30, in train\n    sparse_adam.step()\n{said} [0, 64], got [0, 0]')
    assert (stepped.known, names(stepped)) == ("yes", ["sparse_gradient_empty"])
    made = '  File "a.py", line 3, in <module>\n    s = torch.sparse_coo_tensor(i, v, (3, 4))\n'
    assert explain(f"{made}{said} [2, 4], got [2, 3]").known == "no"
    embedding = torch.nn.Embedding(4, 1, sparse=True, padding_idx=0)
    embedding(torch.tensor([0])).sum().backward()
    assert embedding.weight.grad._nnz() == 0
    torch.optim.SparseAdam(list(embedding.parameters())).step()  # newer releases skip it


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (
            "void backw(torch::Tensor t) {\n    t.backward({}, true, true);\n}\n"
            'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {\n    m.def("backw", &backw);\n}\n\ndiff.backw(y)  # hangs',
            "engine_called_with_gil",
        ),
        (
            "My C++ extension calls torch::autograd::grad in a function bound with pybind11. It never returns, and the "
            "process is stuck without an error.",
            "engine_called_with_gil",
        ),
        (
            "I registered an op with TORCH_LIBRARY and m.impl in C++. The output has no grad_fn and requires_grad is "
            "False.",
            "autograd_fallback",
        ),
    ],
)
def test_a_backward_in_cpp_that_hangs_is_about_the_lock_of_python(text: str, name: str) -> None:
    assert names(explain(text)) == [name]


def test_a_backward_in_cpp_that_hangs_on_several_devices_is_about_these() -> None:
    found = names(explain("DDP training hangs at loss.backward() on 4 GPUs, with a custom C++ extension."))
    assert found[0] == "told_backward_hangs"
    assert "engine_called_with_gil" not in found


@pytest.mark.parametrize(
    "code",
    [
        "grad = torch.autograd.grad(out, x, create_graph=True)[0]\ngrad2 = torch.autograd.grad(grad.sum(), x)[0]",
        "g = autograd.grad(y.sum(), x, create_graph=True)[0]\nh = autograd.grad(g.sum(), x, create_graph=True)[0]",
        "u_xx = torch.autograd.grad(u_x, x, torch.ones_like(u_x), create_graph=True)[0]",
    ],
)
def test_the_second_derivative_of_a_linear_function_is_said_to_be_zero(code: str) -> None:
    net, x = torch.nn.Linear(2, 1), torch.randn(4, 2, requires_grad=True)
    (first,) = torch.autograd.grad(net(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="to not have been used") as caught:
        torch.autograd.grad(first.sum(), x)
    (second,) = torch.autograd.grad(first.sum(), x, allow_unused=True, materialize_grads=True)
    assert not second.any()
    found = explain(f"{code}\nRuntimeError: {caught.value}")
    assert "second derivative is zero" in found.entries[0].title
    once = explain(f"g = torch.autograd.grad(loss, z, create_graph=True)[0]\nRuntimeError: {caught.value}")
    assert "second derivative" not in once.entries[0].title


def test_an_optimizer_that_runs_the_closure_without_gradients_is_named() -> None:
    class Stepped(torch.optim.Optimizer):
        @torch.no_grad()
        def step(self, closure):
            return closure()

    weight = torch.ones(2, requires_grad=True)

    def closure():
        loss = weight.square().sum()
        loss.backward()
        return loss

    with pytest.raises(RuntimeError, match="does not require grad") as caught:
        Stepped([weight], {}).step(closure)
    torch.optim.AdamW([weight]).step(closure)
    said = f"RuntimeError: {caught.value}"
    for text in (f'"{said}" when using AdamW from Hugging Face', f"{said}\nOnly with transformers Adafactor."):
        assert "optimizer of transformers" in explain(text).entries[0].title, text
    frozen = "from transformers import AdamW\nfor p in model.parameters(): p.requires_grad = False\nloss.backward()\n"
    assert "optimizer of transformers" not in explain(frozen + said).entries[0].title


def test_a_fake_sample_that_several_steps_reuse_is_made_again() -> None:
    told = "one of the variables needed for gradient computation has been modified by an inplace operation"
    for text in (f"second time through the G loop: '{told}...'", f"    optimizerG.step()\nRuntimeError: {told}"):
        assert "fake = G(z)" in explain(text).entries[0].change, text


def test_losses_of_data_parallel_come_first_where_the_text_speaks_of_it() -> None:
    said = "RuntimeError: grad can be implicitly created only for scalar outputs"
    assert names(explain(f"INFO - Using Data parallel ...\n{said}"))[0] == "data_parallel_losses"


def test_a_backward_without_a_return_is_named() -> None:
    class Product(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, y):
            return x * y

        @staticmethod
        def backward(ctx, grad_output):
            pass

    x = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="expected 2, got 1") as caught:
        Product.apply(x, x).sum().backward()
    assert "``return`` statement" in explain(f"RuntimeError: {caught.value}").entries[0].fix


# --- the stored form ---


@pytest.mark.parametrize("path", [INDEX, SHOWN], ids=lambda path: path.name)
def test_an_installed_package_reads_what_is_compressed(path: Path, tmp_path: Path) -> None:
    stored = tmp_path / f"{path.name}.packed"
    stored.write_bytes(storing.compressed(path))
    assert storing.read(tmp_path / path.name) == storing.read(path)
    assert stored.stat().st_size < 0.98 * len(lzma.compress(path.read_bytes(), preset=9))


def test_a_text_without_the_words_of_a_pattern_has_no_match_of_it() -> None:
    """The words that decide whether a pattern is compiled at all."""
    rules = matcher().rules
    patterns = {sign.partition(": ")[2] for entry in matcher().entries for sign in conditions(entry)}
    patterns |= {sign.partition(": ")[2] for row in (*rules["kinds"], *rules["layers"]) for sign in row["when"]}
    patterns |= {*(each["find"] for each in rules["outside"]), *rules["concepts"].values(), *rules["details"].values()}
    patterns |= {pattern for pattern, _ in rules["paste"]["clean"]}
    texts = [*PASTES.values(), *(f"{entry.kind}: {entry.message}"[:2000] for entry in entries()[::25])]
    wrong = [
        pattern
        for pattern in patterns
        if any(paste.matches(pattern, t) != bool(paste.compiled(pattern).search(t)) for t in texts)
    ]
    assert not wrong, wrong[:3]
    assert sum(bool(paste.words_of(pattern)) for pattern in patterns) > 0.9 * len(patterns)


def conditions(entry: dict[str, object]) -> list[str]:
    """The conditions of a stored entry, of its cases too."""
    rows = [entry.get(name, ()) for name in ("needs", "favors", "against", "shown_by")]
    rows += [*entry.get("signs", ()), *(case["when"] for case in entry.get("cases", ()))]
    return [sign for row in rows for sign in row]


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("no kernel|device function", ("no kernel", "device function")),
        (r"\bctx\.|saved?_", ("ctx.", "save")),
        ("(?:a|b)c+d*ef", ("ef",)),
        ("(?:loss|(?:my)?grad(?=s)) is (?:not|no) number", (" number",)),
        (r"(?:abc)?x\u0041(?<name>de|f[gh]ij)", ("de", "ij")),
        (r"[|(]x{2,3}yz", ("yz",)),
        ("(?:a|b)|cd", ("a", "b", "cd")),
        (r"(?:a|\d)|cd", ()),
        (r"a(?!b)\w*", ("a",)),
    ],
)
def test_the_words_of_a_pattern_are_those_that_each_match_has(pattern: str, words: tuple[str, ...]) -> None:
    assert paste.words_of(pattern) == words


# --- what is not about gradients, by layer ---


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("RuntimeError: each element in list of batch should be of equal size", "loading of the data"),
        ("TypeError: default_collate: batch must contain tensors; found <class 'Image'>", "loading of the data"),
        ("ValueError: Asking to pad but the tokenizer does not have a padding token.", "tokenizer"),
        ("ValueError: Unable to create tensor, you should probably activate truncation and/or padding", "tokenizer"),
        ("OSError: name/model is not a local folder and is not a valid model identifier listed", "be fetched"),
        ("RuntimeError: unexpected EOF, expected 302313 more bytes. The file might be corrupted.", "be loaded"),
        ("ERROR: No matching distribution found for torch", "installation"),
        ("A module that was compiled using NumPy 1.x cannot be run in NumPy 2.0.0", "installation"),
        ("ValueError: too many dimensions 'str'", "Python data"),
        ("RuntimeError: Unknown builtin op: torchvision::nms", "TorchScript"),
        ("Killed", "operating system"),
        ("I get a CUDA OOM when the model is loaded, though other GPUs are free.", "memory is used up"),
        ("RuntimeError: Calculated padded input size per channel: (2 x 2). Kernel size: (3 x 3).", "shapes do not fit"),
    ],
)
def test_what_is_not_about_gradients_is_said_to_be_so_by_its_layer(text: str, said: str) -> None:
    found = explain(text)
    assert (found.known, names(found)) == ("no", [])
    assert said in found.general
    assert re.search("gradient", found.general)


@pytest.mark.parametrize(
    ("text", "absent"),
    [
        ("The frobnicator of the sprocket is upside down in every second row", True),
        ("My frobnicated backward pass is upside down in every second row", False),
        ("The loss of the sprocket is upside down in every second row", False),
    ],
)
def test_only_a_text_without_gradients_and_training_is_said_to_have_none(text: str, absent: bool) -> None:
    assert ("names no backward" in explain(f"RuntimeError: {text}").general) == absent


# --- messages in a sentence ---


@pytest.mark.parametrize(
    "text",
    [
        'I get the error "RuntimeError: {}" when I call it twice, such as in rsub of the last layer.',
        "I get the error `RuntimeError: {}` when I call it twice, such as in rsub of the last layer.",
        "I get the error _RuntimeError: {}_ when I call it twice, such as in rsub of the last layer.",
    ],
)
def test_a_message_in_quotation_marks_ends_with_them(text: str) -> None:
    said = 'expected scalar type "Half" but found "Float"'
    mark = "'" if '"RuntimeError' in text else '"'
    parts = paste.split(text.format(said.replace('"', mark)), matcher().rules["paste"]).messages
    assert parts[0].text.endswith(f"Float{mark}"), parts[0]
    assert any(part.text.startswith("when I call it twice") for part in parts)


def test_quotation_marks_within_a_quoted_message_are_a_part_of_it() -> None:
    text = 'The error "RuntimeError: "addmm_impl_cpu_" not implemented for \'Half\'" comes in the forward.'
    (first, *_) = paste.split(text, matcher().rules["paste"]).messages
    assert first.text == "\"addmm_impl_cpu_\" not implemented for 'Half'"


def test_a_message_that_is_cut_by_its_quotation_mark_is_known() -> None:
    text = 'I get "NotImplementedError: Trying to use forward AD with <op> that does not support it", e.g. rsub.'
    assert names(explain(text))[0] == "no_forward_formula"


# --- what a program prints ---


@pytest.mark.parametrize("printed", [str, format])
def test_a_nan_that_a_program_prints_is_the_symptom(printed) -> None:
    x = torch.tensor(100.0, requires_grad=True)
    torch.where(x <= 0, torch.exp(x), 1 + x).backward()
    assert str(x.grad) == "tensor(nan)"
    shown = f"y = torch.where(x <= 0, torch.exp(x), 1 + x)\ny.backward()\nprint(x.grad)\nprints\n{printed(x.grad)}"
    found = explain(shown)
    assert (names(found)[0], "torch.where" in found.entries[0].tell) == ("told_nan", True)


def test_a_none_of_which_the_text_says_that_it_is_a_gradient_is_one() -> None:
    text = "Handle missing gradients\n\nThe error _AttributeError: 'NoneType' object has no attribute 'data'_ occurs"
    assert names(explain(text))[0] == "grad_is_none"


def test_checkpointing_on_the_meta_device_works_in_the_newest_release() -> None:
    from torch.utils.checkpoint import checkpoint

    with torch.device("meta"):
        layer, x = torch.nn.Linear(20, 30), torch.randn(1, 20)
    assert checkpoint(layer, x, use_reentrant=False, preserve_rng_state=False).shape == (1, 30)
    said = (
        '  File "torch/utils/checkpoint.py", line 92, in _get_device_module\n    module = getattr(torch, device)\n'
        "AttributeError: module 'torch' has no attribute 'meta'"
    )
    assert "use_reentrant=True" in explain(said).entries[0].change


def test_the_state_of_sgd_is_not_that_of_adam() -> None:
    weight = torch.nn.Parameter(torch.ones(2))
    other = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    weight.sum().backward()
    other.step()
    with pytest.raises(KeyError) as caught:
        torch.optim.Adam([weight]).load_state_dict(other.state_dict())
    said = f"    adam.load_state_dict(torch.load(path)['optimizer'])\nKeyError: {caught.value}"
    assert names(explain(said))[0] == "optimizer_state_of_another"
    for told in (
        "My gradients are None.",
        "The loss becomes nan after 100 steps.",
        "RuntimeError: something else failed",
    ):
        assert "optimizer_state_of_another" not in names(
            explain(f"{told}\n    loss.backward()\n    optimizer.step()\n")
        )


def test_a_dash_is_the_standard_input(monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(MESSAGE.encode())))
    assert main(["explain", "-"]) == 0
    assert "This is it" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "name", "advice"),
    [
        (
            'RuntimeError: p.gQ_strideM() == grad_q.stride(1) INTERNAL ASSERT FAILED at "/x/mem_eff_attention/'
            'attention_backward_generic.cu":180, please report a bug to PyTorch.',
            "attention_backward_asserts_strides",
            "Update xformers",
        ),
        (
            "    self.manual_backward(loss, optimizer)\nTypeError: 'SAM' object is not iterable",
            "lightning_manual_backward_arguments",
            "the loss only",
        ),
        ("c10::Error: CUDA error: driver shutting down", "driver_shutting_down", "before main returns"),
        (
            "loss.backward(retain_graph=True)\nRuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB",
            "told_memory_grows",
            "Remove retain_graph=True",
        ),
        (
            "With gradient checkpointing all gradients are zero. Turning it off fixes the issue.",
            "told_checkpoint_differs",
            "",
        ),
        (
            "    opt.toggle_optimizer()\n"
            "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn",
            "nothing_requires_grad",
            "untoggle_optimizer",
        ),
        (
            "Custom C++ autograd functions with Tensor[] arguments: the backward fails, forward only works.",
            "cpp_tensors_in_list",
            "argument of its own",
        ),
        (
            "AttributeError: 'SGD' object has no attribute '_zero_grad_profile_name'",
            "optimizer_of_another_release",
            "state_dict",
        ),
        (
            "RuntimeError: Output 0 of CompiledFunctionBackward is a view and is being modified inplace.",
            "view_changed",
            "",
        ),
    ],
)
def test_what_libraries_and_readers_say_of_it_leads_to_the_entry(text: str, name: str, advice: str) -> None:
    found = explain(text)
    assert names(found)[0] == name
    assert advice in found.entries[0].advice[0]


def test_the_note_on_a_view_of_compiled_code_names_the_compiler() -> None:
    said = "RuntimeError: Output 0 of CompiledFunctionBackward is a view and is being modified inplace."
    assert "torch.compile" in explain(said).note


def test_a_registered_formula_takes_a_list_of_tensors_and_a_function_does_not_see_it() -> None:
    @torch.library.custom_op("errorlist::total", mutates_args=())
    def total(xs: list[torch.Tensor]) -> torch.Tensor:
        return torch.stack(xs).sum(0)

    def setup_context(ctx, inputs, output) -> None:
        ctx.count = len(inputs[0])

    total.register_autograd(lambda ctx, grad: [grad.clone()] * ctx.count, setup_context=setup_context)

    class Total(torch.autograd.Function):
        @staticmethod
        def forward(ctx, xs):
            return torch.stack(xs).sum(0)

        @staticmethod
        def backward(ctx, grad_output):
            return None

    x = torch.ones(2, requires_grad=True)
    total([x, 2 * x]).sum().backward()
    assert torch.equal(x.grad, torch.full((2,), 3.0))
    assert not Total.apply([x, x]).requires_grad


def test_clipping_does_not_remove_nan_and_inf() -> None:
    weight = torch.nn.Parameter(torch.ones(3))
    weight.grad = torch.tensor([1.0, float("inf"), 2.0])
    torch.nn.utils.clip_grad_norm_([weight], 1.0)
    assert str(weight.grad) == "tensor([0., nan, 0.])"
    weight.grad = torch.tensor([1.0, float("nan"), 2.0])
    assert not torch.isfinite(torch.nn.utils.clip_grad_norm_([weight], 1.0))
    assert weight.grad.isnan().all()
    found = explain("I use clip_grad_norm_, and still the loss becomes nan in the second epoch.")
    assert (names(found)[0], "isfinite" in found.entries[0].change) == ("told_nan", True)


@pytest.mark.parametrize(
    "said", ["Cannot pickle CUDA storage; try pickling a CUDA tensor instead", "CUDA error: initialization error"]
)
def test_what_a_worker_says_of_cuda_is_about_its_process(said: str) -> None:
    assert "forked process" in explain(f"RuntimeError: {said}").general


# --- what readers tell of a training that goes wrong ---


@pytest.mark.parametrize(
    ("text", "name", "advice"),
    [
        (
            "My net does not learn: the loss hovers around 0.693, no matter which learning rate.",
            "told_weights_unchanged",
            "one batch",
        ),
        ("We train LoRA adapters, but the model is not learning at all.", "told_weights_unchanged", "lora_B"),
        ("The loss falls for 4k steps, then it shoots up. No NaN.", "told_diverges", "clip_grad_norm_"),
        ("Loss increases instead of decreasing", "told_diverges", "100 times smaller"),
        ("Accuracy collapses as soon as I call model.eval()", "told_eval_differs", "running_mean"),
        (
            "Two runs with the same seed diverge, the results are not reproducible",
            "told_gradients_differ",
            "first steps",
        ),
        ("The same script gives a different loss on A100 and on V100", "told_gradients_differ", "allow_tf32"),
        ("From batch size 32 to 256 the final accuracy is worse", "told_batch_size", "one sample"),
        ("DDP on 4 GPUs is less accurate than one GPU after equal epochs", "told_parallel_differs", "optimizer steps"),
        ("Training in bf16 plateaus at a worse level than fp32", "told_half_differs", "float32"),
        ("A model under torch.compile is 20 percent slower than before", "told_compile_slow", "recompiles"),
        ("Each epoch takes longer than the previous one, training slows down", "told_backward_slow", "detach"),
        ("With 2 GPUs and DDP, training is slower than on one GPU", "told_backward_slow", "samples per second"),
        ("Validation runs OOM, training is fine: evaluation goes out of memory", "told_memory_high", "no_grad"),
        ("All rows of weight.grad are identical", "told_gradients_equal", "at random"),
        ("After resuming, the loss jumps to a much higher value", "told_resume_differs", "fixed batch"),
        ("Validation accuracy never changes, the training loss falls", "told_validation_stuck", "training data"),
        (
            "With gradient accumulation over 8 batches the loss is 8 times larger",
            "told_accumulation_differs",
            "loss / n",
        ),
        ("My backward does not match the numerical gradient", "told_gradients_wrong", "float64"),
        ("The gradients of all parameters are None with DeepSpeed", "told_gradient_none", "safe_get_full_grad"),
        ("Some layers have zero gradients; at evaluation I pick actions by argmax", "told_gradient_zero", "normalize"),
        ("It keeps OOMing after maybe four epochs", "told_memory_grows", "item()"),
        # What raises nothing: mistakes in the data, the labels, the time and the memory.
        (
            "Each epoch of my DDP run sees identical batches, the sampler never reshuffles",
            "told_sampler_order",
            "set_epoch",
        ),
        ("分布式采样器每个epoch的顺序都相同", "told_sampler_order", "set_epoch"),
        ("Two workers of the loader draw the same random crops from NumPy", "told_random_repeats", "worker_init_fn"),
        ("The noise in __getitem__ is identical in every epoch", "told_random_repeats", "__getitem__"),
        ("After the random flip the mask no longer fits its image", "told_pair_augmented", "for both"),
        (
            "My IterableDataset with 3 workers gives each line three times",
            "told_iterable_duplicates",
            "get_worker_info",
        ),
        ("Every rank goes through the entire dataset under DDP", "told_no_sampler", "DistributedSampler"),
        ("The number of steps per epoch is not divided by the number of GPUs, I use DDP", "told_no_sampler", "sampler"),
        ("Six processes show up on GPU 0, and one on each of the other GPUs", "told_first_gpu", "set_device"),
        ("The network needs 4 ms on cuda, and .cpu() afterwards takes 900 ms", "told_timing", "synchronize"),
        ("The first prediction on the GPU takes ages, all later ones are fast", "told_timing", "warm-up"),
        ("CPU inference got 6 times slower after training, the model is the same", "told_denormal", "flush_denormal"),
        ("GPU utilization hovers at 15 %", "told_gpu_waits", "num_workers"),
        (
            "There is a delay of a minute whenever a new epoch starts: between epochs",
            "told_workers_restart",
            "persistent",
        ),
        ("The GPU is not used by my script, it still runs on the CPU", "told_gpu_unused", "is_available"),
        ("AMP is no faster than float32 for my CNN", "told_half_slow", "synchronize"),
        ("The loader hangs as soon as num_workers is 2", "told_loader_hangs", "spawn"),
        ("The first iteration needs twice the memory, then it is stable", "told_memory_peak", "cudnn.benchmark"),
        ("GPU memory climbs during the first epoch and stays stable from then on", "told_memory_plateau", "reserved"),
        ("I del the model, and the memory is still occupied in nvidia-smi", "told_memory_plateau", "memory_allocated"),
        ("System RAM increases with each worker of the DataLoader", "told_workers_memory", "NumPy array"),
        (
            "out, self.state = self.gru(x, self.state)\nEach step is slower than the last one",
            "told_state_carried",
            "detach",
        ),
        ("The lr stays constant although CosineAnnealingLR is there", "told_schedule", "scheduler.step()"),
        (
            "In Lightning the lr scheduler runs per epoch, I passed interval='step'",
            "told_schedule",
            '"lr_scheduler": {"scheduler"',
        ),
        ("With accelerate on 8 processes the learning rate decays 8 times too fast", "told_schedule", "prepare"),
        ("Weight decay pulls the scales of my LayerNorm to zero", "told_weight_decay", "weight matrices"),
        ("The EMA of my weights has a far lower accuracy than the raw model", "told_ema", "smaller decay"),
        (
            "The probabilities of a sample do not add up to 1 after softmax",
            "told_softmax_dim",
            "dimension of the classes",
        ),
        ("My GPT has a tiny loss and generates gibberish", "told_shifted_labels", "next token"),
        ("The translation model decodes nonsense, teacher forcing looks perfect", "told_shifted_labels", "next token"),
        ("key_padding_mask is ignored by the attention, or is its meaning reversed?", "told_mask", "masked token"),
        ("I shuffled the images, and the labels do not correspond any more", "told_labels_mismatch", "class_to_idx"),
        (
            "The loss is 64 times larger with another reduction, it depends on the batch size",
            "told_loss_factor",
            "none",
        ),
        ("The decoder predicts nothing except <pad>", "told_padding", "ignore_index"),
        ("The classes are imbalanced, and the net always predicts the majority class", "told_majority", "confusion"),
        ("The images get brighter with each epoch, the dataset is changed in place", "told_data_changes", "clone()"),
        ("Validation is fine, my own inference script gives wrong classes", "told_preprocessing", "both programs"),
        ("Inference is wrong: ToTensor, then Normalize with mean 123.675", "told_preprocessing", "0.485"),
        (
            "Predictions in my inference script are worse, it reads with cv2.imread",
            "told_preprocessing",
            "COLOR_BGR2RGB",
        ),
        ("random_split: a new transform for the validation changes both sets", "told_subset_shared", "twice"),
        (
            "load_state_dict(state, strict=False) passes, and the model outputs garbage",
            "told_loaded_nothing",
            "missing_keys",
        ),
        ("Each time I reload the network, its outputs are different", "told_loaded_nothing", "strict=True"),
        ("best = net.state_dict() always equals the last weights", "told_best_reference", "deepcopy"),
        ("My accuracy is 340 %", "told_accuracy_wrong", "argmax(1)"),
        ("The pixels are scrambled after a reshape from NHWC", "told_axes", "permute"),
        ("The regression loss is enormous, about 4e9, and the targets are prices", "told_loss_huge", "mean 0"),
        ("Is it normal that the validation loss is lower than the training loss?", "told_val_below_train", "eval mode"),
        ("Suspiciously perfect accuracy in the validation", "told_too_good", "Shuffle the labels"),
        ("The loss curve is a staircase, it drops at the start of every epoch", "told_sawtooth", "shuffle=True"),
        # Cases of other symptoms.
        (
            "for x, y in loader:\n    cost = crit(net(x), y)\n    cost.backward()\nThe loss remains at 4.6",
            "told_weights_unchanged",
            "optimizer.step()",
        ),
        ("I unfroze the encoder in epoch 3, its weights do not change", "told_weights_unchanged", "add_param_group"),
        (
            "Gradient accumulation is worse: zero_grad() runs in each small batch",
            "told_accumulation_differs",
            "once per n batches",
        ),
        (
            "Batch norm with 2 images per GPU: on 4 GPUs it is worse than on one GPU",
            "told_parallel_differs",
            "SyncBatch",
        ),
        (
            "I all_reduce the loss in front of backward: training on 4 GPUs is worse than on a single GPU",
            "told_parallel_differs",
            "has a backward",
        ),
        (
            "grid_sample on CUDA is nondeterministic: different gradients in two runs",
            "told_gradients_differ",
            "names the operation",
        ),
        ("My transformer gives nan as soon as I pass a padding mask", "told_nan", "keeps a key"),
        ("net.half(), Adam: the weights are nan after one step, float16", "told_nan_in_half", "eps=1e-4"),
        ("KLDivLoss is negative, -0.2", "told_loss_negative", "log_softmax"),
        ("x = torch.Tensor([a, b])\nThe gradient of a is None", "told_gradient_none", "torch.stack"),
        ("F.dropout(x, 0.3) still drops values in eval mode", "told_mode", "training=self.training"),
        ("The predictions depend on the batch size of the inference", "told_batch_size", "model.eval()"),
        (
            "I resume with a smaller learning rate, but the lr is wrong after optimizer.load_state_dict",
            "told_resume_differs",
            'g["lr"] = lr',
        ),
    ],
)
def test_a_training_that_goes_wrong_gets_the_check_to_make_first(text: str, name: str, advice: str) -> None:
    found = explain(text)
    assert (found.known, names(found)[0]) == ("maybe", name)
    assert advice in " ".join(found.entries[0].advice)


@pytest.mark.parametrize(
    ("text", "name", "advice"),
    [
        (
            'Traceback (most recent call last):\n  File "engine.py", line 7, in backward_and_step\n'
            "    self.scaler.step(self.opt)\n"
            "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, "
            "cuda:0 and cpu! "
            "(when checking argument for argument state_steps in method wrapper_CUDA___fused_adamw_)",
            "optimizer_state_on_other_device",
            "step counts",
        ),
        (
            f"def f(n):\n    for i in torch.arange(n):\n        ...\n\ntorch.vmap(f)(torch.tensor([2, 5]))\n\n{ITEM}",
            "item_under_vmap",
            "fixed maximum",
        ),
        (
            "RuntimeError: Function 'CopySlices' returned nan values in its 1th output.",
            "nan_in_slice",
            "read the tensor",
        ),
        (
            "ImportError: cannot import name 'triton_key' from 'triton.compiler.compiler' (/opt/triton/compiler.py)",
            "no_triton",
            "matching Triton",
        ),
        (
            "ValueError: Expected parameter loc (Tensor of shape (32, 8)) of distribution "
            "Normal(loc: torch.Size([32, 8]), scale: torch.",
            "distribution_of_nan",
            "",
        ),
    ],
)
def test_words_and_ends_of_a_message_are_whole_ones(text: str, name: str, advice: str) -> None:
    found = explain(text)
    assert found.known != "no"
    assert names(found)[0] == name
    assert advice in " ".join(found.entries[0].advice)


def test_a_scheduler_that_runs_in_each_batch_stops_the_training() -> None:
    weight = torch.ones(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=5, gamma=0.1)
    for _ in range(100):  # batches of one epoch
        optimizer.step()
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(1e-20)
    found = explain("My SRGAN does not seem to train. scheduler = StepLR(optimizer, step_size=epochs // 2, gamma=0.1)")
    assert found.entries[0].name == "told_weights_unchanged"
    assert "counts calls of ``step()``" in found.entries[0].cause


@pytest.mark.parametrize(
    "text",
    [
        "When I run the training for 10k steps, the CPU memory is used up.",
        "Any model that I train with this class uses up more and more RAM until all 12 GB are gone.",
    ],
)
def test_memory_that_is_used_up_grows(text: str) -> None:
    assert explain(text).entries[0].name == "told_memory_grows"


def test_what_symptoms_are_said_to_come_from_is_so() -> None:
    def change_in_place() -> None:
        x = torch.zeros(4, requires_grad=True) * 1
        x[0:2].sqrt_()
        (x * 0).sum().backward()

    def infinite_of_both_signs() -> None:
        x = torch.zeros(4)
        x[0:2] = torch.zeros(2, requires_grad=True)
        loss = x[:2].sqrt().sum() - x[:2].sqrt().sum()
        assert loss.isfinite()
        loss.backward()

    for step in (change_in_place, infinite_of_both_signs):
        ignored = warnings.catch_warnings(action="ignore")
        with ignored, torch.autograd.detect_anomaly(), pytest.raises(RuntimeError, match="CopySlices"):
            step()

    def doubled(n: torch.Tensor) -> torch.Tensor:
        y = torch.ones(())
        for i in range(5):
            y = torch.where(i < n, y * 2, y)
        return y

    assert torch.vmap(doubled)(torch.tensor([3, 4])).tolist() == [8, 16]
    layer = torch.nn.Linear(3, 4)
    layer(torch.randn(5, 3)).sum().backward()
    assert all(torch.equal(row, layer.weight.grad[0]) for row in layer.weight.grad)
    # An update that is smaller than the rounding of bfloat16 is lost.
    assert torch.tensor(1.0, dtype=torch.bfloat16) + 0.001 == 1
    # The start of LoRA: B is zero, so the first gradient of A is zero.
    a, b = torch.randn(2, 3, requires_grad=True), torch.zeros(4, 2, requires_grad=True)
    (b @ a @ torch.randn(3)).sum().backward()
    assert not a.grad.any()
    assert b.grad.any()
    # A fresh Adam steps as far as the learning rate allows, whatever the gradient.
    for size in (1e-4, 10.0):
        p = torch.nn.Parameter(torch.zeros(3))
        optimizer = torch.optim.Adam([p], lr=0.1)
        p.grad = torch.full((3,), size)
        optimizer.step()
        torch.testing.assert_close(p.detach(), torch.full((3,), -0.1), atol=1e-3, rtol=0)
    with pytest.warns(UserWarning, match="broadcast"):
        torch.nn.functional.mse_loss(torch.zeros(3, 1), torch.zeros(3))


# --- symptoms that are known by their concepts, and the questions of the guide ---


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("The RAM of the machine climbs epoch after epoch", "told_memory_grows"),
        ("显存随着训练逐渐增加", "told_memory_grows"),
        ("梯度一直是0", "told_gradient_zero"),
        ("参数没有更新，梯度是None", "told_gradient_none"),
        ("勾配が消失して学習できない", "told_gradient_zero"),
        ("The optimizer steps, and the embeddings remain unchanged", "told_weights_unchanged"),
        ("The running mean of a frozen batch norm keeps changing", "told_frozen_changes"),
        ("requires_grad=False is set for the backbone, but weight decay still shrinks it", "told_frozen_changes"),
        ("冻结的层参数还是会变", "told_frozen_changes"),
        ("I froze the encoder, and its batch norm still drifts", "told_frozen_changes"),
        ("jacfwd of my network needs 200 GB of memory", "told_jacobian_memory"),
        ("I need gradients in validation_step of Lightning", "told_gradient_in_evaluation"),
        ("The total norm that FSDP2 prints is a third of the right value", "told_norm_of_shard"),
        ("ROC of torchmetrics gets stuck in compute() on two GPUs", "told_metrics"),
        ("With GradScaler, clipping has no effect on the gradients", "told_clipped_scaled"),
        ("The gradients accumulate because I forgot zero_grad in one of two optimizers", "told_grad_added"),
        ("DDP skips the synchronization of my gradients", "told_ranks_diverge"),
        ("print_trainable_parameters says trainable params: 0 for my LoRA adapter", "told_weights_unchanged"),
        ("A Lightning model stands still: the loss of training_step does not decrease", "told_weights_unchanged"),
    ],
)
def test_a_symptom_is_known_by_its_concepts(text: str, name: str) -> None:
    found = explain(text)
    assert found.known == "maybe"
    assert name in names(found)


@pytest.mark.parametrize(
    "text",
    [
        "Which learning rate is best for fine-tuning, if the loss does not decrease?",
        "My model overfits. How do I reduce it?",
        "Should I use a larger batch size on 8 GPUs?",
        "How many epochs until the loss is no longer decreasing?",
        "What does the weight of the loss in the config mean?",
        "Where can I download the frozen weights?",
        "学习率和batch size怎么选择，loss不下降？",
        "My images are blurry after training",
    ],
)
def test_a_question_for_a_value_is_no_symptom(text: str) -> None:
    assert explain(text).known == "no"


def test_a_case_can_ask_for_a_concept() -> None:
    assert "advantages" in explain("Under GRPO the gradient norm is 0").entries[0].change
    assert "training_step" in explain("In Lightning the weights do not change").entries[0].change


def test_a_way_has_known_concepts_only(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = [way for stored in matcher().entries for way in stored.get("ways", ())]
    assert ways
    assert {name for way in ways for name in named_in(way)} <= {
        *matcher().rules["concepts"],
        *matcher().rules["details"],
    }
    raised = [{field: stored[field] for field in RAISED} for stored in matcher().entries if stored["name"] in PROGRAMS]
    monkeypatch.setattr("docs.errors.build.named_in", lambda _: ["no_such_concept"])
    with pytest.raises(ValueError, match="no_such_concept"):
        compiled(raised)


def test_no_concept_is_in_most_questions() -> None:
    """A concept that any text has would tell nothing; all questions are about gradients."""
    asked = matcher().answers[len(matcher().entries) :]
    for name in {*matcher().rules["concepts"]} - {"gradients"}:
        assert sum(name in about for about in matcher().topics.about[-len(asked) :]) < len(asked) / 3, name


def test_a_question_of_the_guide_is_an_answer_with_its_address() -> None:
    found = explain("The codebook of my VQ-VAE has a gradient of None, all other parameters have one")
    asked = next(entry for entry in found.entries if entry.page)
    assert asked.title == "VQ-VAE: why is the codebook's gradient None?"
    assert asked.url.endswith("guide/questions_choices.html#vq-vae-why-is-the-codebook-s-gradient-none")
    assert "straight-through" in asked.remedy
    assert as_json(found)["entries"][names(found).index(asked.name)]["url"] == asked.url


def test_the_questions_are_those_of_the_guide() -> None:
    asked = [(each["page"], each["title"], each["fix"]) for each in matcher().answers[len(matcher().entries) :]]
    assert asked == [(each["page"], each["title"], each["change"]) for each in questions()]
    headings = sum(path.read_text().count("\n### ") for path in (DOCS / "guide").glob("questions*.md"))
    assert len(asked) > 0.9 * headings
    assert all(change.endswith((".", "!", "?", ")")) and "{" not in title for _, title, change in asked)


def test_a_text_without_a_latin_letter_is_read() -> None:
    assert explain("梯度为零").known == "maybe"
    assert main(["explain", "梯度为零"]) == 0
    with pytest.raises(ValueError, match="expected an error message"):
        explain("123 …")


def test_an_optimizer_with_the_state_of_another_is_known_by_its_traceback() -> None:
    layer = torch.nn.Linear(2, 1)
    adam, sgd = torch.optim.Adam(layer.parameters()), torch.optim.SGD(layer.parameters(), lr=0.1)
    layer(torch.ones(1, 2)).sum().backward()
    adam.step()

    def told(load: Callable[[], object]) -> str:
        with pytest.raises(KeyError) as raised:
            load()
        return "".join(traceback.format_exception(raised.value))

    texts = [
        told(lambda: (sgd.load_state_dict(adam.state_dict()), sgd.step())),
        told(lambda: adam.load_state_dict(torch.optim.lr_scheduler.StepLR(adam, 1).state_dict())),
    ]
    for text in texts:
        assert names(explain(text))[0] == "optimizer_state_of_another", text
    assert explain("KeyError: 'momentum'").known == "no"


def test_what_is_said_of_frozen_layers_is_so() -> None:
    norm = torch.nn.BatchNorm1d(3).requires_grad_(False)
    before = norm.running_mean.clone()
    norm(torch.randn(8, 3) + 1)
    assert not torch.equal(norm.running_mean, before)
    before = norm.eval().running_mean.clone()
    norm(torch.randn(8, 3) + 1)
    assert torch.equal(norm.running_mean, before)

    def moves(grad: torch.Tensor | None, **options: float) -> bool:
        p = torch.nn.Parameter(torch.ones(2))
        optimizer = torch.optim.AdamW([p], lr=0.1, **options)
        p.sum().backward()
        optimizer.step()
        before = p.detach().clone()
        p.requires_grad_(False)
        p.grad = grad
        optimizer.step()
        return not torch.equal(p, before)

    assert moves(torch.zeros(2), weight_decay=0.0)  # by the averages
    assert moves(torch.ones(2), weight_decay=0.0)  # by what was left
    assert not moves(None, weight_decay=0.1)


def test_what_is_said_of_zero_inputs_and_inference_mode_is_so() -> None:
    layer = torch.nn.Linear(3, 2)
    layer(torch.zeros(4, 3)).sum().backward()
    assert not layer.weight.grad.any()
    assert layer.bias.grad.all()
    with torch.inference_mode():
        x = torch.ones(3)
        with torch.enable_grad():
            assert not layer(torch.ones(1, 3)).requires_grad
    with pytest.raises(RuntimeError, match="inference"):
        x.requires_grad_()
    assert x.clone().requires_grad_().requires_grad
    with torch.no_grad(), torch.enable_grad():
        assert layer(torch.ones(1, 3)).requires_grad


def test_what_is_said_of_autograd_inside_of_a_transform_is_so() -> None:
    found = explain("autograd.functional.vjp has gradients of 0 when it runs inside of vmap")
    assert "torch.func.vjp" in found.entries[0].change
    x = torch.randn(3, 2)
    with pytest.raises(RuntimeError, match=r"autograd\.functional"):
        torch.vmap(lambda row: torch.autograd.functional.vjp(lambda t: t.square().sum(), row)[1])(x)
    gradient = torch.vmap(lambda row: torch.func.vjp(lambda t: t.square().sum(), row)[1](torch.tensor(1.0))[0])(x)
    torch.testing.assert_close(gradient, 2 * x)


def test_what_is_said_of_chunks_of_a_jacobian_is_so() -> None:
    x = torch.randn(5)
    whole, chunked = (torch.func.jacrev(torch.sin, chunk_size=size)(x) for size in (None, 2))
    assert torch.equal(whole, chunked)


def test_what_is_said_of_ranks_that_drift_apart_is_so() -> None:
    def gradients() -> dict[str, float]:
        import torch
        from torch.nn.parallel import DistributedDataParallel

        torch.manual_seed(0)
        model = DistributedDataParallel(torch.nn.Linear(1, 1, bias=False))
        rank = torch.distributed.get_rank()
        x = torch.full((1, 1), float(rank + 1))
        found = {}
        for name, call in (("wrapped", model), ("module", model.module)):
            model.zero_grad()
            call(x).sum().backward()
            found[name] = model.module.weight.grad.item()
        model.zero_grad()
        with model.no_sync():
            model(x).sum().backward()
        found["no_sync"] = model.module.weight.grad.item()
        (grad,) = torch.autograd.grad(model(x).sum(), model.module.weight)
        return {**found, "grad": grad.item()}

    there = run_ranks(gradients, 2)
    assert [each["wrapped"] for each in there] == [1.5, 1.5]
    for name in ("module", "no_sync", "grad"):
        assert [each[name] for each in there] == [1.0, 2.0], name


def test_what_is_said_of_functions_that_are_not_in_the_graph_is_so() -> None:
    found = explain("My custom Function takes a list of tensors, and the gradient of each of them is None")
    assert "as its own argument" in found.entries[0].change
    enabled = []

    class First(torch.autograd.Function):
        @staticmethod
        def forward(ctx, tensors):
            enabled.append(torch.is_grad_enabled())
            return tensors[0] * 2

        @staticmethod
        def backward(ctx, grad):
            return grad

    @torch.library.custom_op("cookbook_tests::doubled", mutates_args=())
    def doubled(x: torch.Tensor) -> torch.Tensor:
        enabled.append(torch.is_grad_enabled())
        return x * 2

    x = torch.ones(3, requires_grad=True)
    assert not First.apply([x]).requires_grad
    with pytest.raises(RuntimeError, match="autograd"):
        doubled(x).sum().backward()
    assert enabled == [False, False]


# --- what a text shows of a symptom, besides the symptom itself ---


@pytest.mark.parametrize(
    ("text", "name", "advice"),
    [
        ("我的权重一直没有更新，但是梯度是有值的，每一步都在变", "told_weights_unchanged", "param_groups"),
        (
            "The gradient of alpha is non-zero, but alpha is not updated by SGD",
            "told_weights_unchanged",
            "param_groups",
        ),
        (
            "My loss does not decrease.\nfor t in range(900):\n    loss = f(w, b)\n    loss.backward()\n"
            "    w.data -= rate * w.grad",
            "told_weights_unchanged",
            "w.grad = None",
        ),
        ("On four GPUs the job gets stuck in the second epoch, one GPU is fine", "told_backward_hangs", "rank"),
        ("多卡训练到一半就卡死了，单卡正常", "told_backward_hangs", "rank"),
        (
            "h = layer(x)\nloss = h.square().sum()\nloss.backward()\nprint(h.grad)  # None\nWhy is the gradient None?",
            "told_gradient_none",
            "retain_grad",
        ),
        (
            "In the second iteration the gradient is None.\nloss.backward()\nw = w - 0.1 * w.grad",
            "told_gradient_none",
            "w -= lr",
        ),
        (
            "VRAM rises with each batch of the validation until it is full; the memory is not freed",
            "told_memory_grows",
            "model.eval() does not",
        ),
        (
            "RuntimeError: cuda runtime error (2) : out of memory at aten/src/THC/generic/x.cu:9\n\n"
            "The memory increases in the evaluation.",
            "told_memory_grows",
            "no_grad",
        ),
        ("Selecting rows with an index of equal numbers makes training slow", "told_backward_slow", "index_select"),
        (
            "With DDP every process trains independently, and I get four models",
            "told_ranks_diverge",
            "wrapped",
        ),
        (
            "with autocast: under no_grad I call the teacher, then once more with gradients: no grad_fn at all",
            "told_gradient_in_evaluation",
            "cache_enabled",
        ),
        (
            "The gradients change although I pass the same batch in the second pass",
            "told_gradients_differ",
            "in eval mode",
        ),
        (
            "The numerical and the analytical gradient differ: f(torch.tensor([p[1], 2.0])).sum()",
            "told_gradients_wrong",
            "torch.stack",
        ),
        (
            "A callback freezes the encoder at epoch 3, and it is not frozen: its weights are still updated",
            "told_frozen_changes",
            "Freeze before the forward",
        ),
        (
            "RuntimeError: one of the variables needed for gradient computation has been modified by an inplace "
            "operation: [torch.LongTensor [12]] is at version 1; expected version 0 instead.\n"
            "I run the official code of this GNN without changes.",
            "index_changed",
            "torch_geometric",
        ),
    ],
)
def test_what_a_text_shows_of_its_symptom_is_named(text: str, name: str, advice: str) -> None:
    found = explain(text)
    assert found.known != "no"
    assert names(found)[0] == name
    assert advice in " ".join([*found.entries[0].advice, found.entries[0].cause])


def test_a_loss_that_is_stuck_is_no_process_that_hangs() -> None:
    for text in ("With DDP the loss is stuck at 0.69", "多卡训练时loss不下降"):
        assert names(explain(text))[0] != "told_backward_hangs", text


def test_an_optional_part_of_an_extension_is_not_about_gradients() -> None:
    found = explain("RuntimeError: Not compiled with HDF5 support")
    assert (found.known, "optional part" in found.general) == ("no", True)
    assert names(explain("RuntimeError: Not compiled with GPU support")) == ["extension_without_gpu_code"]


def test_what_is_said_of_a_loop_by_hand_is_so() -> None:
    def losses(*, zeroed: bool) -> list[float]:
        x = torch.linspace(-1, 1, 20)
        w, seen = torch.zeros(2, requires_grad=True), []
        for _ in range(200):
            loss = (w[0] * x + w[1] - 3 * x - 1).square().mean()
            loss.backward()
            seen.append(loss.item())
            with torch.no_grad():
                w -= 0.05 * w.grad
            if zeroed:
                w.grad = None
        return seen

    added, zeroed = losses(zeroed=False), losses(zeroed=True)
    assert added[0] > added[1]
    assert max(added[100:]) > 1 > 1e-3 > zeroed[-1]
    assert sorted(zeroed, reverse=True) == zeroed
    w, norms = torch.ones(2, requires_grad=True), []
    for _ in range(3):
        (3 * w).sum().backward()
        norms.append(w.grad.norm().item())
    assert norms[2] > norms[1] > norms[0]
    w = w - 0.1 * w.grad
    (3 * w).sum().backward()
    with warnings.catch_warnings(action="ignore"):
        assert (w.is_leaf, w.grad) == (False, None)
    leaf = torch.ones(2, requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        leaf -= 1


def test_what_is_said_of_a_parameter_that_the_optimizer_lacks_is_so() -> None:
    p, q = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([p], lr=0.1)
    before, same = q.detach().clone(), p.data
    for there in (False, True):
        assert any(q is each for group in optimizer.param_groups for each in group["params"]) == there
        (p * q).sum().backward()
        optimizer.step()
        assert q.grad.all()
        assert torch.equal(q, before) != there
        optimizer.add_param_group({"params": [q]}) if not there else None
    assert torch.equal(same, p)  # it is the same memory


def test_what_is_said_of_a_parameter_that_is_frozen_too_late_is_so() -> None:
    p = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([p], lr=0.1)
    p.sum().backward()
    p.requires_grad_(False)
    for _ in range(2):
        before = p.clone()
        optimizer.step()
        assert not torch.equal(p, before)
    optimizer.zero_grad()
    before = p.clone()
    optimizer.step()
    assert torch.equal(p, before)


def test_what_is_said_of_equal_passes_copies_and_variances_of_zero_is_so() -> None:
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.BatchNorm1d(3), torch.nn.Dropout())
    x = torch.randn(4, 3, requires_grad=True)

    def gradient() -> torch.Tensor:
        x.grad = None
        net(x).square().sum().backward()
        return x.grad

    assert not torch.equal(gradient(), gradient())
    net.eval()
    assert torch.equal(gradient(), gradient())
    # A copy by torch.tensor has no history; the grad_fn is that of the weight.
    weight, point = torch.nn.Parameter(torch.ones(1)), torch.ones(2, requires_grad=True)
    with pytest.warns(UserWarning, match="Converting a tensor with requires_grad=True to a scalar"):
        y = weight * torch.tensor([point[0]])
    assert y.grad_fn is not None
    with pytest.raises(RuntimeError, match="not have been used"):
        torch.autograd.grad(y, point)
    # A normalization of a constant row divides by a variance of zero.
    row = torch.ones(1, 4, requires_grad=True)
    for eps, finite in ((0.0, False), (1e-5, True)):
        row.grad = None
        (torch.nn.functional.layer_norm(row, (4,), eps=eps) * torch.randn(4)).sum().backward()
        assert row.grad.isfinite().all() == finite


@pytest.mark.parametrize(
    ("text", "name", "advice"),
    [
        (
            "I left the box loss out of the sum, but the weights of its head are still changing",
            "told_frozen_changes",
            "weight decay",
        ),
        (
            "The weights do not change, but the accuracy in the evaluation changes",
            "told_frozen_changes",
            "running_mean",
        ),
        ("Loss turns into nan after 3000 iterations, the data is fine", "told_nan", "gradient norm of each step"),
        (
            "The backward of my Function is never called.\nclass Id(Function):\n    @staticmethod\n"
            "    def forward(ctx, t):\n        return t\n",
            "told_backward_not_called",
            "view_as",
        ),
        (
            "class Two(Function): ...\nThe second branch is not used in the loss, and I expect its gradient "
            "to be None, however it is zero",
            "told_gradient_zero",
            "set_materialize_grads",
        ),
        (
            "Results on training images are fine, and bad in the test on the same images",
            "told_eval_differs",
            "eval mode",
        ),
        ("x.unfold(2, 3, 1).sum().backward() is extremely slow, the forward is fast", "told_backward_slow", "profiler"),
        (
            "Memory grows with each call of loss.backward(create_graph=True), nothing is freed",
            "told_memory_grows",
            "torch.autograd.grad",
        ),
        (
            "with torch.no_grad(): y = net(x)\nThe memory still grows in each iteration",
            "told_memory_grows",
            "requires_grad",
        ),
        (
            "DDP: the gradients differ between ranks, one of the two heads is not used in forward",
            "told_ranks_diverge",
            "find_unused_parameters=True",
        ),
        (
            "After I moved the DDP model to the CPU and back to the GPU, gradients are not synchronized",
            "told_ranks_diverge",
            "Wrap the model again",
        ),
        ("All LoRA parameters have requires_grad set to False in training", "told_weights_unchanged", "is_trainable"),
        (
            "z = torch.rand(4).to(device)\nz.requires_grad_()\nout = net(z)\nThe requires_grad of out would be False",
            "told_gradient_none",
            "no_grad",
        ),
        ("Gradients:\ntensor([[0., -0., 0.],\n        [0., 0., 0.]])", "told_gradient_zero", "retain_grad"),
    ],
)
def test_a_cause_that_the_words_of_a_symptom_show_is_named(text: str, name: str, advice: str) -> None:
    found = explain(text)
    assert (found.known, names(found)[0]) == ("maybe", name)
    assert advice in " ".join([*found.entries[0].advice, found.entries[0].cause])


def test_what_is_said_of_ranks_that_average_nothing_is_so() -> None:
    def gradients() -> dict[str, float | str]:
        import torch
        from torch.nn.parallel import DistributedDataParallel

        class Branches(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.used, self.unused = (torch.nn.Linear(1, 1, bias=False) for _ in range(2))

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.used(x)

        x = torch.full((1, 1), float(torch.distributed.get_rank() + 1))
        found: dict[str, float | str] = {}
        for found_unused in (False, True):
            model = DistributedDataParallel(Branches(), find_unused_parameters=found_unused)
            model(x).sum().backward()
            found[f"unused {found_unused}"] = model.module.used.weight.grad.item()
            if not found_unused:
                try:
                    model(x)
                except RuntimeError as error:
                    found["next forward"] = str(error)[:40]
        layer = torch.nn.Linear(1, 1, bias=False)
        model = DistributedDataParallel(layer)
        for name in ("wrapped", "converted", "again"):
            if name == "converted":
                model.double()
                model.float()
            if name == "again":
                model = DistributedDataParallel(layer)
            layer.zero_grad()
            model(x).sum().backward()
            found[name] = layer.weight.grad.item()
        return found

    there = run_ranks(gradients, 2)
    for name in ("unused True", "wrapped", "again"):
        assert [each[name] for each in there] == [1.5, 1.5], name
    for name in ("unused False", "converted"):
        assert [each[name] for each in there] == [1.0, 2.0], name
    assert all(each["next forward"].startswith("Expected to have finished reduction") for each in there)


def test_what_is_said_of_gradients_of_zeros_is_so() -> None:
    class Two(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a, b, materialized):
            ctx.set_materialize_grads(materialized)
            return a * 1, b * 1

        @staticmethod
        def backward(ctx, grad_a, grad_b):
            return grad_a, grad_b, None

    for materialized in (True, False):
        a, b = (torch.ones(1, requires_grad=True) for _ in range(2))
        Two.apply(a, b, materialized)[0].sum().backward()
        assert (b.grad is None) != materialized
    for kind in (torch.optim.SGD, torch.optim.AdamW):
        p = torch.nn.Parameter(torch.ones(2))
        optimizer = kind([p], lr=0.1, weight_decay=0.1)
        optimizer.step()
        assert p.eq(1).all()
        p.grad = torch.zeros(2)
        optimizer.step()
        assert p.lt(1).all()


def test_what_is_said_of_forwards_that_return_their_input_and_of_generators_is_so() -> None:
    class Same(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x

        @staticmethod
        def backward(ctx, grad):
            return 7 * grad

    x = torch.ones(1, requires_grad=True)
    y = Same.apply(x + 1)
    y.backward()
    assert (x.grad.item(), y.grad_fn.name()) == (7, "SameBackward")

    @torch.no_grad()
    def recorded():
        for _ in range(2):
            yield (2 * x).requires_grad

    assert [*recorded()] == [False, False]
    with warnings.catch_warnings(action="ignore"), torch.backends.mkldnn.flags(enabled=False):
        assert torch.nn.Conv2d(1, 1, 2)(torch.ones(1, 1, 3, 3)).requires_grad


def test_a_gradient_with_a_graph_keeps_its_leaf() -> None:
    kept = {}
    for name in ("backward", "grad", "dropped"):
        x = torch.randn(3, requires_grad=True)
        if name == "grad":
            torch.autograd.grad(x.tanh().sum(), x, create_graph=True)
        else:
            with warnings.catch_warnings(action="ignore"):
                x.tanh().sum().backward(create_graph=True)
        if name == "dropped":
            x.grad = None
        leaf = weakref.ref(x)
        del x
        gc.collect()
        kept[name] = leaf() is not None
    assert kept == {"backward": True, "grad": False, "dropped": False}


# --- mistakes in the data, the labels, the time and the memory, which raise nothing ---


def test_a_leak_is_no_cache_and_a_seed_is_no_worker() -> None:
    """What is near to such a mistake, and another one."""
    for text, name in (
        ("The GPU memory grows in each iteration until OOM", "told_memory_grows"),
        ("Two runs with the same seed give different results", "told_gradients_differ"),
        ("backward hangs on two GPUs", "told_backward_hangs"),
        ("The loss becomes nan", "told_nan"),
        ("The weights do not change", "told_weights_unchanged"),
    ):
        assert names(explain(text))[0] == name, text


class Drawn(torch.utils.data.Dataset):
    """Random numbers from three generators."""

    def __init__(self) -> None:
        self.own = np.random.default_rng(0)

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[float, float, float]:
        return float(np.random.rand()), float(self.own.random()), float(torch.rand(()))  # noqa: NPY002


def constant_seed(_: int) -> None:
    np.random.seed(42)  # noqa: NPY002


class Three(torch.utils.data.IterableDataset):
    def __iter__(self) -> Iterator[int]:
        return iter(range(3))


class Halved(torch.utils.data.Dataset):
    def __init__(self) -> None:
        self.stored = torch.ones(2)

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> torch.Tensor:
        x = self.stored[index]
        x *= 0.5
        return x


def test_what_is_said_of_loaders_is_so() -> None:
    from torch.utils.data import DataLoader, DistributedSampler, random_split

    load = functools.partial(DataLoader, batch_size=2, num_workers=2)
    first, second = load(Drawn())
    again = next(iter(load(Drawn())))
    assert not torch.equal(first[0], second[0])  # NumPy is seeded in each worker
    assert torch.equal(first[1], second[1])  # and a generator of one's own is copied
    assert torch.equal(first[1], again[1])
    assert not torch.equal(first[2], second[2])
    same = [numpy for numpy, _, _ in load(Drawn(), worker_init_fn=constant_seed)]
    assert torch.equal(*same)
    assert sorted(int(x) for x in DataLoader(Three(), batch_size=None, num_workers=2)) == [0, 0, 1, 1, 2, 2]
    sampler = DistributedSampler(range(20), num_replicas=2, rank=0)
    order = list(sampler)
    assert list(sampler) == order
    sampler.set_epoch(1)
    assert list(sampler) != order
    with pytest.raises(ValueError, match="mutually exclusive"):
        DataLoader(range(20), sampler=sampler, shuffle=True)
    halved = DataLoader(Halved())
    assert [next(iter(halved)).item() for _ in range(3)] == [0.5, 0.25, 0.125]
    train, valid = random_split(Halved(), [1, 1])
    assert train.dataset is valid.dataset


def test_what_is_said_of_stored_and_loaded_states_is_so() -> None:
    layer = torch.nn.Linear(2, 2)
    best, copied = layer.state_dict(), copy.deepcopy(layer.state_dict())
    with torch.no_grad():
        layer.weight += 1
    assert torch.equal(best["weight"], layer.weight)
    assert not torch.equal(copied["weight"], layer.weight)
    skipped = layer.load_state_dict({"model.weight": torch.zeros(2, 2)}, strict=False)
    assert (skipped.missing_keys, skipped.unexpected_keys) == (["weight", "bias"], ["model.weight"])
    # The state of an optimizer goes by position, and brings its learning rate.
    a, b = (torch.nn.Parameter(torch.ones(2)) for _ in range(2))
    optimizer = torch.optim.Adam([a, b], lr=0.5)
    a.grad, b.grad = torch.ones(2), torch.full((2,), 5.0)
    optimizer.step()
    other = torch.optim.Adam([b, a], lr=7.0)
    other.load_state_dict(optimizer.state_dict())
    torch.testing.assert_close(other.state[b]["exp_avg"], torch.full((2,), 0.1))
    assert other.param_groups[0]["lr"] == 0.5
    # An optimizer of the trainable parameters does not get one that is unfrozen later.
    frozen, trained = torch.nn.Parameter(torch.ones(1), requires_grad=False), torch.nn.Parameter(torch.ones(1))
    optimizer = torch.optim.SGD([p for p in (frozen, trained) if p.requires_grad], lr=1.0)
    frozen.requires_grad_()
    (frozen * trained).sum().backward()
    optimizer.step()
    assert (frozen.item(), frozen.grad.item(), trained.item()) == (1, 1, 0)
    # An averaged model copies buffers.
    norm = torch.nn.BatchNorm1d(2)
    averaged = torch.optim.swa_utils.AveragedModel(norm)
    norm(torch.randn(8, 2) + 5)
    averaged.update_parameters(norm)
    assert torch.equal(averaged.module.running_mean, norm.running_mean)


def test_what_is_said_of_decay_and_of_eps_is_so() -> None:
    moved = {}
    for kind, decay in ((torch.optim.AdamW, 0.1), (torch.optim.Adam, 0.1), (torch.optim.Adam, 0.001)):
        p = torch.nn.Parameter(torch.ones(1))
        optimizer = kind([p], lr=0.01, weight_decay=decay)
        p.grad = torch.zeros(1)
        optimizer.step()
        moved[kind.__name__, decay] = p.item()
    assert moved["AdamW", 0.1] == pytest.approx(1 - 0.01 * 0.1)
    assert moved["Adam", 0.1] == pytest.approx(1 - 0.01, abs=1e-4)
    assert moved["Adam", 0.001] == pytest.approx(1 - 0.01, abs=1e-4)
    for eps, finite in ((1e-8, False), (1e-4, True)):
        p = torch.nn.Parameter(torch.ones(2, dtype=torch.float16))
        p.grad = torch.tensor([0.0, 1e-4], dtype=torch.float16)
        torch.optim.Adam([p], lr=1e-3, eps=eps).step()
        assert bool(p.isfinite().all()) == finite
    p = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.SGD([p], lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.1)
    with pytest.warns(UserWarning, match="before `optimizer.step"):
        scheduler.step()
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.1)


def test_what_is_said_of_masks_is_so() -> None:
    x = torch.rand(2, 3, 8)
    everything = torch.tensor([[True] * 3, [False, False, True]])
    attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    with_weights, without = (attention(x, x, x, key_padding_mask=everything, need_weights=n)[0] for n in (True, False))
    assert with_weights[0].isnan().all()
    assert not without.isnan().any()
    nothing = F.scaled_dot_product_attention(x, x, x, attn_mask=torch.zeros(3, 3, dtype=torch.bool))
    assert not nothing.any()
    # True: the key is ignored here, and takes part there.
    changed = x.clone()
    changed[1, 2] += 1
    kept = slice(0, 2)
    before, after = (attention(x[:, kept], t, t, key_padding_mask=everything)[0][1] for t in (x, changed))
    torch.testing.assert_close(before, after)
    before, after = (
        F.scaled_dot_product_attention(x[:, kept], t, t, attn_mask=~everything[:, None])[1] for t in (x, changed)
    )
    torch.testing.assert_close(before, after)
    # A float mask of ones and zeros removes nothing.
    ones = (~everything[1]).float().expand(2, 3)
    before, after = (F.scaled_dot_product_attention(x[1, kept], t[1], t[1], attn_mask=ones) for t in (x, changed))
    assert not torch.allclose(before, after)


def test_what_is_said_of_losses_and_metrics_is_so() -> None:
    target = torch.tensor([[0.15, 0.05, 0.1]])
    assert F.kl_div(torch.tensor([[0.1, 0.55, 0.35]]).log(), target, reduction="batchmean") < 0
    assert F.kl_div(torch.tensor([[0.1, 0.55, 0.35]]).log(), target / target.sum(), reduction="batchmean") > 0
    q, p = torch.randn(4, 10).log_softmax(1), torch.randn(4, 10).softmax(1)
    with pytest.warns(UserWarning, match="batchmean"):
        small = F.kl_div(q, p, reduction="mean")
    torch.testing.assert_close(F.kl_div(q, p, reduction="batchmean"), 10 * small)
    assert (torch.zeros(5, 1) == torch.zeros(5)).sum() == 25
    assert torch.randn(1, 4).softmax(0).tolist() == [[1.0] * 4]
    # A mean of means is not the mean if the last batch is smaller.
    x = torch.arange(5.0)
    assert torch.stack([x[:4].mean(), x[4:].mean()]).mean() != x.mean()
    # A pixel that was scaled twice.
    low, high = ((v - 123.675) / 58.395 for v in (0, 1))
    assert (round(low, 2), round(high, 2)) == (-2.12, -2.10)
    # The padding of an embedding gets no gradient.
    embedding = torch.nn.Embedding(3, 2, padding_idx=0)
    embedding(torch.tensor([0, 1])).sum().backward()
    assert embedding.weight.grad.sum(1).tolist() == [0, 2, 0]
    with warnings.catch_warnings(action="ignore"):  # PyTorch warns once in a process
        assert not torch.Tensor([torch.nn.Parameter(torch.ones(1))]).requires_grad


def test_what_is_said_of_axes_modes_and_states_is_so() -> None:
    image = torch.arange(12).view(2, 2, 3)
    assert not torch.equal(image.reshape(3, 2, 2), image.permute(2, 0, 1))
    x = torch.rand(3, 4, 2)  # batch, time, features
    changed = x.clone()
    changed[0] += 1
    for batch_first, mixed in ((True, False), (False, True)):
        lstm = torch.nn.LSTM(2, 3, batch_first=batch_first)
        assert bool((lstm(x)[0][1:] != lstm(changed)[0][1:]).any()) == mixed

    class Dropped(torch.nn.Module):
        def forward(self, t: torch.Tensor) -> torch.Tensor:
            return F.dropout(t)

    assert (Dropped().eval()(torch.ones(100)) == 0).any()
    # A state that is carried over without detach().
    cell = torch.nn.GRUCell(1, 2)
    state = cell(torch.ones(1, 1), torch.zeros(1, 2))
    state.sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        cell(torch.ones(1, 1), state).sum().backward()
    # zero_grad() in each small batch leaves the gradient of the last one.
    layer = torch.nn.Linear(1, 1, bias=False)
    for value in (1.0, 5.0):
        layer.zero_grad()
        layer(torch.full((1, 1), value)).sum().backward()
    assert layer.weight.grad.item() == 5


def test_what_is_said_of_a_value_that_is_reduced_inside_of_the_loss_is_so() -> None:
    def gradients() -> dict[str, float]:
        import warnings

        import torch
        from torch.distributed.nn.functional import all_reduce

        warnings.simplefilter("ignore")
        x = float(torch.distributed.get_rank() + 1)
        w = torch.ones((), requires_grad=True)
        in_place = w * x * 1
        torch.distributed.all_reduce(in_place)
        in_place.square().backward()
        found = {"in place": w.grad.item()}
        w.grad = None
        all_reduce(w * x).square().backward()
        return {**found, "with a backward": w.grad.item()}

    # Of the loss (1 w + 2 w)², each rank has its own part; with a backward, those of the losses of both ranks.
    there = run_ranks(gradients, 2)
    assert [each["in place"] for each in there] == [6.0, 12.0]
    assert [each["with a backward"] for each in there] == [12.0, 24.0]


def test_the_mark_of_a_launcher_shows_that_several_processes_ran() -> None:
    """Tensors of one dimension are mostly running statistics, which DDP overwrites if several processes run."""
    text = "RuntimeError: one of the variables needed for gradient computation has been modified by an inplace "
    text += "operation: [torch.cuda.FloatTensor [768]] is at version 3; expected version 2 instead."
    assert names(explain(text))[0] == "stepped_before_backward"
    found = explain(f"[rank1]: {text}")
    assert (found.known, names(found)[0]) == ("maybe", "ddp_buffers_broadcast")
    found = explain(f"With one GPU it works. With torchrun on 2 GPUs, with a GAN:\n[rank1]: {text}")
    assert (found.known, names(found)) == ("yes", ["ddp_buffers_broadcast"])


def test_the_sizes_of_nested_tensors_are_symbols() -> None:
    text = "RuntimeError: cannot call binary pointwise function mul.Tensor with inputs of shapes "
    assert names(explain(f"{text}(8, j5, 256) and (8, j6, 256)"))[0] == "nested_made_apart"
    text = "RuntimeError: Function CloneBackward0 returned an invalid gradient at index 0 - got [3, j3] but expected "
    assert "jagged" in explain(f"{text}shape compatible with [3, j2]").entries[0].tell
    assert names(explain("NotImplementedError: aten.smooth_l1_loss.default"))[0] == "nested_operator_missing"


def test_a_user_of_a_library_is_told_what_to_do_without_changing_its_function() -> None:
    text = "RuntimeError: You tried to vmap over ScanFn, but it does not have vmap support. Please override and "
    text += "implement the vmap staticmethod or set generate_vmap_rule=True."
    assert "loop over the samples" in explain(text).note
    assert not explain(f"class ScanFn(torch.autograd.Function):\n    pass\n\n{text}").note


@pytest.mark.parametrize(
    "text",
    [
        "ZeRORuntimeException: The checkpoint being loaded used a DP world size of 2 but the current world size is 16.",
        "Resuming with DeepSpeed:\nRuntimeError: The size of tensor a (12582912) must match the size of tensor b "
        "(25165824) at non-singleton dimension 0",
        "FileNotFoundError: No such file or directory: 'run/global_step9/zero_pp_rank_4_mp_rank_00_optim_states.pt'",
    ],
)
def test_the_pieces_of_another_number_of_processes_are_recognized(text: str) -> None:
    assert names(explain(text))[0] == "zero_other_world_size"


def test_a_message_with_another_name_of_an_argument_is_the_same() -> None:
    found = explain("In checkpoint(block, x, mask=mask): ValueError: Unexpected keyword arguments: attention_mask")
    assert names(found)[0] == "reentrant_keyword"
    text = "ValueError: infer_schema(func): Parameter weights has unsupported type torch.nn.Parameter."
    assert names(explain(text))[0] == "unsupported_parameter"


def test_the_pages_can_show_every_text() -> None:
    """In reStructuredText, a backtick or an asterisk outside of a literal begins something that has to end."""
    bad = []
    for entry in entries():
        for told in (entry, *entry.cases):
            for field in ("title", "tell", "change", "cause", "fix"):
                plain = re.sub(r"``[^`]+``|\*\w[^*\n]*(?<=\S)\*|:\w+:`[^`]+`", "", getattr(told, field, "") or "")
                if found := re.search(r"`|(?<![\w*])\*+(?=[\w(\[])", plain):
                    bad.append((entry.name, field, plain[max(0, found.start() - 20) : found.end() + 30]))
    assert not bad, bad
