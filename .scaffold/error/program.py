

@raises(
    "WRITE(newname): what happened",
    cause="""WRITE(newname): why PyTorch says this; whole sentences, ``code`` in double
    backquotes.""",
    fix="WRITE(newname): what to do.",
    see=("guide/ctx",),
)
def newname():
    raise RuntimeError("WRITE(newname): a short program that makes PyTorch say it")


@fixes(newname)
def newname_fixed():
    torch.ones(2)  # WRITE(newname): the same program without the mistake
