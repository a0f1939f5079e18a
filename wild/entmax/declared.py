"""What the documentation says of arguments."""


def alpha_above_one(scores, alpha, *rest):
    return scores, alpha.clamp(1.05, 4.0), *rest
