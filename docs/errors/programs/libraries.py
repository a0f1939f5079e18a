"""Lightning, Opacus, PEFT and other libraries.

We do not install these libraries, so no program raises their messages: all are in ``entries``.
"""
