"""Any text made safe and legible for a terminal."""

from __future__ import annotations

__all__ = ("clipped", "visible")

_NAMED = {"\n": "⏎", "\t": "⇥", "\x7f": "␡"}
_LINE_ENDS = "\x85\u2028\u2029"
_NAMED_ASCII = {"\n": "\\n", "\t": "\\t"}


def visible(text: str, *, ascii_only: bool = False, keep_lines: bool = False) -> str:
    r"""`text` with every character that would act on a terminal shown instead of sent.

    Control characters become signs, marks that reorder or hide text become escapes, so no
    reply can move the cursor, recolour the screen or disguise itself.

    Args:
        text: anything, lone surrogates included.
        ascii_only: escape what is not ASCII as well.
        keep_lines: break the line after a newline's sign.

    >>> visible("37 + 5\n\x1b[31mred\u202e")
    '37 + 5⏎␛[31mred\\u202e'
    >>> visible("ü\x1b\n", ascii_only=True)
    '\\xfc\\x1b\\n'
    """
    shown = [_shown(character, ascii_only) for character in text]
    if keep_lines:
        shown = [s + "\n" if c == "\n" else s for c, s in zip(text, shown, strict=True)]
    return "".join(shown)


def clipped(text: str, most: int, *, ellipsis: str = "…") -> str:
    """At most `most` characters of `text`, with an ellipsis where some are missing.

    >>> clipped("abcdef", 4), clipped("abcd", 4)
    ('abc…', 'abcd')
    """
    if len(text) <= most:
        return text
    return text[: max(0, most - len(ellipsis))] + ellipsis


def _shown(character: str, ascii_only: bool) -> str:
    if character == " " or (character.isprintable() and not ascii_only):
        return character
    if ascii_only:
        return _ascii(character)
    if character in _NAMED:
        return _NAMED[character]
    if character < " ":
        return chr(0x2400 + ord(character))
    return (
        " " if character.isspace() and character not in "\x85\u2028\u2029" else _escape(character)
    )


def _ascii(character: str) -> str:
    if " " <= character <= "~":
        return character
    return _NAMED_ASCII.get(character) or _escape(character)


def _escape(character: str) -> str:
    if character.isascii():
        return f"\\x{ord(character):02x}"
    return character.encode("ascii", "backslashreplace").decode("ascii")
