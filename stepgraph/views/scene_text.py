"""Words on their way into a picture: on one line, with nothing in them that a file format forbids."""

from __future__ import annotations

import textwrap


def printable(words: str) -> str:
    r"""Text that any of the formats can hold: no control characters, no lone halves of a pair.

    >>> printable("a\x00b\ud800")
    'a b '
    """
    return "".join(letter if letter == "\n" or _fine(letter) else " " for letter in words)


def flat(words: str) -> str:
    """The same on one line."""
    return " ".join(printable(words).split())


def wrapped(words: str, width: int) -> list[str]:
    """Lines of at most so many letters; those after the first are set in."""
    return textwrap.wrap(flat(words), width, subsequent_indent="  ", drop_whitespace=True)


def _fine(letter: str) -> bool:
    if letter < " " or "\x7f" <= letter <= "\x9f" or "\ud800" <= letter <= "\udfff":
        return False
    return letter not in "\ufffe\uffff"
