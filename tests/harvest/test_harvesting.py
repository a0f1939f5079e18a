"""From recorded calls to findings: side by side, in order, and each function for itself."""

import functools
import json
import os
import select
import signal
import time
import types
from pathlib import Path

import pytest
import torch
from torch import nn

from autograd_cookbook.harvest import callables, harvesting, judging, parallel
from autograd_cookbook.harvest.fresh import judged_afresh
from autograd_cookbook.harvest.harvesting import add_stale, add_unreached, audited
from autograd_cookbook.harvest.judging import Task, cut_down, judge
from autograd_cookbook.harvest.options import FunctionOptions, Options
from autograd_cookbook.harvest.parallel import judged
from autograd_cookbook.harvest.programs import program_for
from autograd_cookbook.harvest.recording import Recorder
from autograd_cookbook.harvest.results import (
    FunctionResult,
    Harvest,
    accept_baseline,
    read_baseline,
    write_baseline,
)
from autograd_cookbook.harvest.terminal import headline
from tests.harvest.functions import Calls, Clock, Dies, Double, NeedsThread, Reruns, Round, Slow, Wrong, leaf

QUICK = {"only": ["first_order"]}


def task(cls, **options):
    return Task(0, cls.__qualname__, cls.apply, (leaf(3, 2),), QUICK | options)


def recorded(*classes):
    with Recorder() as recorder:
        for cls in classes:
            cls.apply(leaf(3, 2))
    return recorder.functions.values()


def harvested(*classes, said=None, jobs=2):
    names = {f"tests.harvest.functions.{cls.__name__}": FunctionOptions(dict(QUICK)) for cls in classes}
    return audited(recorded(*classes), Options(names | (said or {})), jobs=jobs)


def test_one_that_dies_costs_itself_alone():
    verdicts = judged([task(Wrong), task(Dies), task(Double)], jobs=2)
    assert [v.report is not None for v in verdicts] == [True, False, True]
    assert verdicts[1].reason == "the process of its audit died (SIGKILL)"
    assert verdicts[0].report["findings"][0]["check"] == "first_order"


def test_one_that_hangs_is_ended(monkeypatch):
    monkeypatch.setattr(parallel, "LONGEST", 1.0)
    monkeypatch.setattr(parallel, "judge", lambda task: time.sleep(60))
    start = time.monotonic()
    (verdict,) = judged([task(Double)], jobs=1)
    assert verdict.reason == "its audit was not done after 1 s"
    assert time.monotonic() - start < 30


def test_a_signal_that_ends_the_harvest_ends_its_audits(monkeypatch):
    monkeypatch.setattr(parallel, "judge", lambda task: (os.write(theirs, b"."), time.sleep(60)))
    ours, theirs = os.pipe()
    harvest = os.fork()
    if not harvest:
        try:
            judged([task(Double)] * 2, jobs=2)
        finally:
            os._exit(3)
    os.close(theirs)
    for _ in range(2):
        assert os.read(ours, 1)
    os.kill(harvest, signal.SIGTERM)
    assert os.WTERMSIG(os.waitpid(harvest, 0)[1]) == signal.SIGTERM
    # The pipe ends when the last process that has its other end is gone.
    assert select.select([ours], [], [], 20)[0]
    assert os.read(ours, 1) == b""


def test_what_the_budget_does_not_suffice_for_is_listed():
    verdicts = judged([task(Double)] * 3, jobs=1, budget=1e-6)
    assert {v.reason for v in verdicts} == {"the budget of 1e-06 s was spent before its turn"}


def test_ctrl_c_keeps_what_is_done():
    def interrupt(name, done, total):
        raise KeyboardInterrupt

    verdicts = judged([task(Double)] * 3, jobs=1, progress=interrupt)
    assert verdicts[0].report is not None
    assert [v.reason for v in verdicts[1:]] == ["interrupted"] * 2


def test_the_number_of_jobs_does_not_change_the_result():
    def plain(harvest):
        return [
            (f.name, f.file, f.line, f.calls, [(g.check, g.severity, g.cause) for g in f.findings], f.capabilities)
            for f in harvest.functions
        ]

    torch.manual_seed(0)
    one = plain(harvested(Wrong, Double, Round, jobs=1))
    assert one == plain(harvested(Round, Double, Wrong, jobs=3))
    assert [name.rpartition(".")[2] for name, *_ in one] == ["Double", "Round", "Wrong"]


def test_a_finding_that_several_calls_show_is_listed_once_at_the_line_of_the_class():
    with Recorder() as recorder:
        Wrong.apply(leaf(3, 2))
        Wrong.apply(leaf(3))
    harvest = audited(
        recorder.functions.values(), Options({"tests.harvest.functions.Wrong": FunctionOptions(dict(QUICK))}), jobs=2
    )
    (function,) = harvest.functions
    assert function.audited == 2
    assert [f.check for f in function.findings] == ["first_order"]
    assert Path(function.file).read_text().splitlines()[function.line - 1] == "class Wrong(Double):"
    assert not harvest.ok


def test_a_surrogate_is_to_be_declared_and_then_is_right():
    (function,) = harvested(Round).functions
    assert [(f.severity, f.summary.partition(".")[0]) for f in function.findings] == [
        ("info", "looks like a surrogate: declare it")
    ]
    name = "tests.harvest.functions.Round"
    said = FunctionOptions(QUICK | {"surrogate": "tests.harvest.functions:identity"})
    (function,) = harvested(Round, said={name: said}).functions
    assert function.findings == []


def test_what_is_not_deterministic_is_not_audited():
    verdict = judge(Task(0, "Clock", Clock.apply, (leaf(3),), {"only": ["repeatable"]}))
    assert verdict.reason.startswith("it is not deterministic: output 0 of a second, identical call")


def test_methods_of_a_module_and_its_parameters_stay_what_they_are():
    module = nn.Linear(3, 2)
    verdict = judge(Task(0, "Reruns", Reruns.apply, (module.forward, leaf(4, 3), *module.parameters()), QUICK))
    assert not verdict.report["findings"]
    assert verdict.report["capabilities"]["first_order"] == "yes"


class Scales:
    """Something with parameters that is no module."""

    def __init__(self, factor):
        self.parts = [{"factor": factor}]

    def __call__(self, x):
        return x.sin() * self.parts[0]["factor"]


def as_closure(factor):
    linear = nn.Linear(1, 1, bias=False)
    linear.weight = nn.Parameter(factor.detach())

    def inner(x):
        return x.sin() * linear.weight.squeeze()

    return lambda x: inner(x), linear.weight


@pytest.mark.parametrize(
    "made",
    [
        as_closure,
        lambda factor: (Scales(factor), factor),
        lambda factor: (Scales(factor).__call__, factor),
        lambda factor: (functools.partial(torch.mul, factor), factor),
    ],
    ids=["closure", "object", "method", "partial"],
)
def test_what_a_callable_uses_and_is_an_argument_too_stays_one_tensor(made):
    function, factor = made(torch.tensor([[1.5]], requires_grad=True))
    with Recorder() as recorder:
        Calls.apply(function, leaf(4, 1), factor)
    with torch.no_grad():
        factor.zero_()  # the program goes on, and the copies stay as they are
    (entry,) = recorder.functions.values()
    (call,) = entry.best(1)
    assert torch.equal(call.target(*call.args), call.args[0](call.args[1]))
    assert call.target(*call.args).abs().max() > 0
    verdict = judge(Task(0, "Calls", call.target, call.args, QUICK))
    assert not verdict.report["findings"]
    assert verdict.report["capabilities"]["first_order"] == "yes"


FACTOR = torch.tensor([[1.5]], requires_grad=True)


SCALE = nn.Linear(1, 1, bias=False)
ELSEWHERE = types.ModuleType("elsewhere")
ELSEWHERE.factor = FACTOR


def scaled(x):
    return SCALE(x)


@pytest.mark.parametrize(
    ("function", "factor"),
    [
        (lambda x: x * FACTOR, FACTOR),
        (lambda x: scaled(x), SCALE.weight),
        (lambda x: next(y * FACTOR for y in [x]), FACTOR),
    ],
    ids=["tensor", "module in a function", "inner scope"],
)
def test_a_callable_reads_the_global_tensors_of_each_call(function, factor):
    before = dict(globals())
    verdict = judge(Task(0, "Calls", Calls.apply, (function, leaf(4, 1), factor), QUICK))
    assert not verdict.report["findings"]
    assert verdict.report["capabilities"]["first_order"] == "yes"
    assert dict(globals()) == before


def test_a_callable_that_uses_the_tensor_of_another_module_is_not_audited():
    verdict = judge(Task(0, "Calls", Calls.apply, (lambda x: x * ELSEWHERE.factor, leaf(4, 1), FACTOR), QUICK))
    assert verdict.reason.startswith("one of its arguments is a callable that uses the original tensors")


def test_objects_that_refer_to_each_other_are_looked_at_once(monkeypatch):
    looked_at = []
    parts = callables._parts
    monkeypatch.setattr(callables, "_parts", lambda value: looked_at.append(value) or parts(value))
    objects = [Scales(None) for _ in range(30)]
    for one in objects:
        one.parts = objects
    tensor = leaf(1)
    assert callables.users((objects[0],), {id(tensor)}) == []
    assert len(looked_at) == len(objects) + 1  # and their list
    objects[-1].factor = tensor
    assert callables.users((1, objects[0]), {id(tensor)}) == [1]


def test_what_is_cut_off_is_not_measured_and_not_wrong(monkeypatch):
    monkeypatch.setattr(judging, "TIMEOUT", 0.5)
    verdict = judge(Task(0, "Slow", Slow.apply, (leaf(20),), QUICK))
    assert not verdict.report["findings"]
    assert "not measured within 0.5 s: first_order" in verdict.report["notes"]


def test_large_calls_are_cut_down_where_the_function_accepts_that():
    x, (small, flag) = leaf(50, 40), cut_down(Double.apply, (leaf(50, 40), None))
    assert small.numel() < judging.LARGE
    assert small.shape[0] != small.shape[1]
    assert flag is None
    demanding = lambda x: Double.apply(x.view(50, 40))  # noqa: E731
    assert cut_down(demanding, (x,))[0] is x


def test_accepted_findings_do_not_count_and_stale_ones_are_problems():
    name = "tests.harvest.functions.Wrong"
    harvest = harvested(Wrong, said={name: FunctionOptions(dict(QUICK), accept={"first_order": "meant so"})})
    assert harvest.ok
    assert harvest.functions[0].findings[0].accepted == "meant so"
    name = "tests.harvest.functions.Double"
    options = Options({name: FunctionOptions(accept={"first_order": "meant so"})})
    harvest = harvested(Double, said={name: FunctionOptions(dict(QUICK), accept={"first_order": "meant so"})})
    add_stale(harvest, options)
    assert not harvest.ok
    assert "accepts 'first_order', which the audit does not find any more" in harvest.problems[0]


def test_what_a_pattern_accepts_is_stale_only_if_no_function_shows_it():
    pattern = "tests.harvest.functions.*"
    said = {pattern: FunctionOptions(dict(QUICK), accept={"first_order": "meant so"})}
    harvest = audited(recorded(Wrong, Double), Options(said))
    add_stale(harvest, Options(said))
    add_unreached(harvest, Options(said), whole=True)
    assert harvest.ok
    assert harvest.functions[1].findings[0].accepted == "meant so"
    harvest = audited(recorded(Double), Options(said))
    add_stale(harvest, Options(said))
    assert f'functions."{pattern}"] accepts' in harvest.problems[0]
    add_unreached(harvest, Options({"tests.nowhere.*": FunctionOptions()}), whole=True)
    assert "no such function was called" in harvest.problems[1]


def test_a_pattern_for_functions_that_are_only_in_the_sources_is_known(tmp_path):
    (tmp_path / "poses").mkdir()
    (tmp_path / "poses" / "maps.py").write_text("import torch\nclass Log(torch.autograd.Function): ...\n")
    harvest = Harvest([])
    said = {"poses.maps.*": FunctionOptions(), "poses.nowhere.*": FunctionOptions()}
    add_unreached(harvest, Options(said, sources=(str(tmp_path),)), whole=True)
    assert [problem.count("poses.nowhere.*") for problem in harvest.problems] == [1]


def test_a_part_of_the_functions_says_nothing_about_the_others_of_the_table():
    harvest = Harvest([])
    add_unreached(harvest, Options({"a.Other": FunctionOptions()}), whole=False)
    assert harvest.ok


def test_calls_of_other_sizes_show_the_same_finding():
    def report(cause):
        found = {"check": "first_order", "severity": "error", "summary": "", "cause": cause, "fix": "", "url": ""}
        return {"findings": [found], "capabilities": {}, "checks": [], "notes": [], "seconds": {}}

    result = FunctionResult("F", "f.py", 1)
    for cause in ("12 of 21 entries are wrong.", "16 of 28 entries are wrong.", "It is halved."):
        result.add(report(cause), {})
    assert [f.cause for f in result.findings] == ["12 of 21 entries are wrong.", "It is halved."]


def test_a_function_that_hangs_in_a_forked_process_is_audited_in_a_new_one(monkeypatch):
    monkeypatch.setattr(judging, "TIMEOUT", 1.0)
    call = (NeedsThread.apply, (leaf(3, 2),))
    assert call[0](*call[1]) is not None  # from here on, this process has the thread that a forked process lacks
    (verdict,) = judged([Task(0, "NeedsThread", *call, QUICK)], jobs=1)
    assert [f["check"] for f in verdict.report["findings"]] == ["first_order"], verdict.reason
    local = type("Local", (NeedsThread,), {"__module__": "__main__"})
    assert judged_afresh(Task(0, "Local", local.apply, call[1], QUICK), 60.0) is None


def test_a_run_that_audits_nothing_does_not_say_ok():
    result = FunctionResult("F", "f.py", 1, reached=True, not_audited="it hangs")
    assert headline(Harvest([result])).startswith("nothing audited: 0 of 1 custom function audited, 1 reached")
    assert headline(Harvest([])).startswith("ok: 0 of 0")


def test_inputs_of_the_project_take_the_place_of_recorded_ones():
    name = "tests.harvest.functions.Wrong"
    harvest = harvested(Wrong, said={name: FunctionOptions(dict(QUICK), inputs="tests.harvest.test_harvesting:zeros")})
    assert harvest.functions[0].findings[0].program.count("0.0") >= 4


def zeros():
    return torch.zeros(4, dtype=torch.float64, requires_grad=True), None


def test_options_that_lead_nowhere_are_problems():
    name = "tests.harvest.functions.Wrong"
    harvest = harvested(Wrong, said={name: FunctionOptions({"surrogate": "no_such:thing"})})
    assert "no_such" in harvest.problems[0]
    harvest = Harvest([])
    add_unreached(harvest, Options({"a.NoSuch": FunctionOptions()}), whole=True)
    assert "no such function was called" in harvest.problems[0]


def test_functions_that_were_not_reached_are_listed(tmp_path):
    (tmp_path / "code.py").write_text("import torch\nclass Lonely(torch.autograd.Function): ...\n")
    harvest = harvested(Double)
    add_unreached(harvest, Options(sources=(str(tmp_path),)), whole=True)
    lonely = next(f for f in harvest.functions if f.name == "Lonely")
    assert (lonely.reached, lonely.line, lonely.file) == (False, 2, str(tmp_path / "code.py"))


def test_a_baseline_holds_what_is_known(tmp_path):
    harvest = harvested(Wrong)
    path = tmp_path / "baseline.json"
    write_baseline(path, harvest)
    assert not harvest.ok
    accept_baseline(harvest, read_baseline(path))
    assert harvest.ok
    for bad in ("{}", "no json"):
        path.write_text(bad)
        with pytest.raises(ValueError, match="is not a baseline"):
            read_baseline(path)
    with pytest.raises(ValueError, match="no baseline"):
        read_baseline(tmp_path / "none.json")


def test_the_program_of_a_finding_shows_it(tmp_path):
    (found,) = harvested(Wrong).functions[0].findings
    printed = []
    exec(found.program, {"print": printed.append})
    assert [f.check for f in printed[0].findings] == ["first_order"]


def test_a_program_has_every_tensor_and_each_once():
    x, mask = leaf(3), torch.tensor([True, False])
    text = program_for("tests.harvest.functions.Wrong", (x, mask, (x, 2.5, float("inf"))), "runs", {})
    assert "(x0, x1, (x0, 2.5, float('inf')))" in text
    assert text.count("torch.tensor(") == 2
    assert "torch.Size([5, 3])" in program_for("tests.harvest.functions.Wrong", (x, torch.Size((5, 3))), "runs", {})
    assert program_for("tests.harvest.functions.Wrong", (x, object()), "runs", {}) == ""


def test_results_survive_json():
    harvest = harvested(Wrong, Round)
    again = Harvest.from_dict(json.loads(json.dumps(harvest.to_dict())) | {"ok": None})
    assert again == harvest


def test_the_slow_check_runs_for_one_call_of_a_function():
    with Recorder() as recorder:
        Double.apply(leaf(3))
        Double.apply(leaf(3, 2))
    (entry,) = recorder.functions.values()
    first, second = harvesting._tasks(0, entry, FunctionOptions())
    assert harvesting.SLOW not in first.options["skip"]
    assert harvesting.SLOW in second.options["skip"]
