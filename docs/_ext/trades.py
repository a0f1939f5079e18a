"""What is said first of a recipe that takes long, or keeps more when it is compiled."""

from autograd_cookbook.catalog import Recipe

SLOW = 1.5  # times the composition's time, from which on the page says it first
LITTLE = 0.05  # bytes that a recipe may keep more when it is compiled, before the page says so
FIRST = "When to use it"  # the section that does
REASONS = {
    "range": "is finite or accurate where that is not",
    "second order": "has a second derivative",
    "forward mode": "has forward mode",
    "gradient": "has another gradient, on purpose",
}


def trade(recipe: Recipe, contenders: dict[str, dict[str, float]]) -> str | None:
    """What follows the name of a recipe that takes clearly longer than its composition; None for another one."""
    ours, theirs = contenders["ours"], contenders.get("composition")
    if theirs is None or theirs["time"] * SLOW >= 1:
        return None
    gains = [
        f"{verb} {number(ours[column])} bytes per {recipe.cost.unit} instead of {number(theirs[column])}"
        for column, verb in (("saved", "keeps"), ("peak", "peaks at"))
        if ours[column] < 0.95 * theirs[column]
    ]
    gains += [reason for win, reason in REASONS.items() if win in recipe.cost.wins]
    text = f" takes {number(1 / theirs['time'])} times as long as the composition"
    return f"{text}, and gains nothing for it." if not gains else f"{text}. In return it {listed(gains)}."


def compiled(recipe: Recipe, contenders: dict[str, dict[str, float]]) -> str | None:
    """What follows the name of a recipe that keeps more when it is compiled; None for another one."""
    ours, whole = contenders["ours"]["saved"], contenders.get("ours, compiled", {}).get("saved")
    if whole is None or whole < ours + LITTLE:
        return None
    text = f" keeps {number(whole)} bytes per {recipe.cost.unit} when it is compiled, and {number(ours)} in eager mode."
    theirs = contenders.get("composition, compiled")
    return text + (f" The compiled composition keeps {number(theirs['saved'])}." if theirs else "")


def listed(parts: list[str]) -> str:
    """A, B and C."""
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if parts[1:] else parts)


def number(value: float) -> str:
    """Three digits, and no exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}" if value >= 0.001 or value == 0 else f"{value:.4f}"
