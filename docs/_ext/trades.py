"""What is said first of a recipe that takes long, or keeps more when it is compiled."""

import torch

from autograd_cookbook.catalog import Recipe

SLOW = 1.5  # times the composition's time, from which on the page says it first
LITTLE = 0.05  # bytes that a recipe may keep more when it is compiled, before the page says so
FIRST = "When to use it"  # the section that does
CLEAR_BYTES, CLEAR_TIME = 0.05, 0.1  # shares by which two measurements differ clearly: bytes are exact, times are not
GAINS = {
    "saved": "fewer bytes for backward",
    "peak": "a lower peak",
    "time": "less time",
    "range": "the right result for inputs for which torch returns NaN, infinity or an inaccurate number",
    "second order": "a second derivative",
    "forward mode": "forward mode",
    "gradient": "another gradient",
}
OTHERS = {"built-in": "PyTorch's own solution", "composition": "a composition of PyTorch operations"}
# Where a built-in function has the name that its documentation uses.
HOMES = {"torch": torch, "torch.nn.functional": torch.nn.functional, "torch.linalg": torch.linalg}
REASONS = {
    "range": "is right for some inputs for which the composition returns NaN, infinity or an inaccurate number",
    "second order": "has a second derivative",
    "forward mode": "has forward mode",
    "gradient": "has another gradient, on purpose",
}


def public_name(function: object) -> str | None:
    """The name by which torch documents a function; None for one that is not torch's."""
    own = getattr(function, "__name__", "")
    for home, module in HOMES.items():
        for name in (own, own.removeprefix("linalg_")):
            if name and getattr(module, name, None) is function:
                return f"{home}.{name}"
    return None


def built_in(recipe: Recipe) -> str:
    """The name of the function that PyTorch has for this; not every recipe's is a single function."""
    return public_name(recipe.cost.built_in) or OTHERS["built-in"]


def trade(recipe: Recipe, contenders: dict[str, dict[str, float]]) -> str | None:
    """What follows the name of a recipe that takes clearly longer than its composition; None for another one."""
    ours, theirs = contenders["ours"], contenders.get("composition")
    if theirs is None or theirs["time"] * SLOW >= 1:
        return None
    gains = [
        f"{verb} {of_bytes(ours[column])} per {recipe.cost.unit} instead of {number(theirs[column])}"
        for column, verb in (("saved", "keeps"), ("peak", "peaks at"))
        if ours[column] < 0.95 * theirs[column]
    ]
    gains += [reason for win, reason in REASONS.items() if win in recipe.cost.wins]
    text = f" takes {number(1 / theirs['time'])} times as long as {OTHERS['composition']}"
    return f"{text} and has no advantage over it." if not gains else f"{text}. In return, the recipe {listed(gains)}."


def compiled(recipe: Recipe, contenders: dict[str, dict[str, float]]) -> str | None:
    """What follows the name of a recipe that keeps more when it is compiled; None for another one."""
    ours, whole = contenders["ours"]["saved"], contenders.get("ours, compiled", {}).get("saved")
    if whole is None or whole < ours + LITTLE:
        return None
    text = (
        f" keeps {of_bytes(whole)} per {recipe.cost.unit} when you compile it, instead of {number(ours)} in eager mode."
    )
    if (theirs := contenders.get("composition, compiled")) is None:
        return text
    said = f"composition of PyTorch operations keeps {number(theirs['saved'])} when compiled"
    if alike(theirs["saved"], whole, CLEAR_BYTES):
        saves = contenders["composition"]["saved"] > ours + LITTLE
        end = "the recipe saves memory in eager mode only" if saves else "the recipe saves no memory in either mode"
        return f"{text} A {said}, so {end}."
    if theirs["saved"] < whole:
        return f"{text} A {said}, so compile a composition if memory decides."
    return f"{text} A {said}, so the recipe still saves memory."


def verdict(recipe: Recipe, contenders: dict[str, dict[str, float]]) -> str:
    """What a recipe costs, in a sentence: next to torch's own function, or to the composition where torch has none."""
    rival = next((name for name in ("built-in", "composition") if name in contenders), None)
    ours, unit = contenders["ours"], recipe.cost.unit
    if rival is None:
        return (
            f"The recipe keeps {of_bytes(ours['saved'])} per {unit} for backward and peaks at {number(ours['peak'])}."
        )
    theirs, parts = contenders[rival], []
    for column, verb, more in (("saved", "keeps", f" per {unit} for backward"), ("peak", "peaks at", "")):
        if alike(ours[column], theirs[column], CLEAR_BYTES):
            if column == "saved":
                parts.append(f"keeps the same number of bytes for backward ({number(ours[column])} per {unit})")
        else:
            parts.append(f"{verb} {number(ours[column])} instead of {of_bytes(theirs[column])}{more}")
    slower = alike(1, theirs["time"], CLEAR_TIME)
    parts.append("takes about as long" if slower else f"takes {number(1 / theirs['time'])} times as long")
    other = built_in(recipe) if rival == "built-in" else OTHERS[rival]
    return f"Compared with {other}, the recipe {listed(parts)}."


def instead(recipe: Recipe, contenders: dict[str, dict[str, float]]) -> str | None:
    """What follows "Use torch's function instead"; None where the recipe is ahead, or nothing speaks for the other."""
    ours, theirs = contenders["ours"], contenders["built-in"]
    columns = {"saved": CLEAR_BYTES, "peak": CLEAR_BYTES, "time": CLEAR_TIME}
    clear = [column for column, limit in columns.items() if not alike(ours[column], theirs[column], limit)]
    gains = [GAINS[column] for column in clear if ours[column] < theirs[column]]
    gains += [GAINS[win] for win in recipe.cost.wins if win in REASONS]
    losses = [column for column in clear if ours[column] > theirs[column]]
    if not gains:
        return ": in our measurement, torch's function is as good or better in memory and time."
    if not losses:
        return None
    said = [f"takes {number(theirs['time'])} times as long"] if "time" in losses else []
    said += [
        f"{verb} {number(theirs[column])} instead of {of_bytes(ours[column])} per {recipe.cost.unit}"
        for column, verb in (("saved", "keeps"), ("peak", "peaks at"))
        if column in losses
    ]
    return f" unless you need {listed(gains)}. Torch's function {listed(said)}."


def alike(a: float, b: float, limit: float) -> bool:
    """Whether two measurements differ by no more than a share of the larger."""
    return abs(a - b) <= limit * max(a, b)


def of_bytes(value: float) -> str:
    """An amount with its unit."""
    return f"{number(value)} byte{'' if number(value) == '1' else 's'}"


def listed(parts: list[str]) -> str:
    """A, B and C."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if parts[1:] else parts)


def number(value: float) -> str:
    """Three digits, and no exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value >= 0.001 or value == 0 else f"{value:.4f}"
