

@check()
def newname(subject: Subject) -> Iterator[Finding]:
    """WRITE(newname): in one line, what a right function does.

    WRITE(newname): why that matters, for the page that shows the two programs.
    """
    # WRITE(newname): what to measure. A finding says what was seen, why it happens, what to do.
    for cls in subject.classes:
        if cls.__name__ == "NewNameBroken":
            yield finding(
                "warning",
                f"{cls.__name__} is called so",
                "The scaffold knows it by its name.",
                "Write the check.",
            )
