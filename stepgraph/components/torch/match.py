"""Whether weights that an engine is offered are those of its own model, in one line where they are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stepgraph.errors import RunError

SHOWN = 3  # how many wrong tensors an error names
Shape = Sequence[int]


def differences(offered: Mapping[str, Shape], expected: Mapping[str, Shape]) -> list[str]:
    """What is unknown, of another shape, or missing, in words."""
    odd = [_difference(name, shape, expected.get(name)) for name, shape in offered.items()]
    return [*filter(None, odd), *(f"{name} is missing" for name in expected if name not in offered)]


def refuse_other_model(offered: Mapping[str, Shape], expected: Mapping[str, Shape]) -> None:
    """Raise unless both name the same tensors in the same shapes."""
    wrong = differences(offered, expected)
    if wrong:
        more = f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
        shown = ", ".join(wrong[:SHOWN])
        raise RunError(
            f"engine.sync got the weights of another model: {shown}{more}; trainer and engine must share one"
        )


def _difference(name: str, offered: Shape, expected: Shape | None) -> str:
    if expected is None:
        return f"{name} is unknown here"
    return "" if tuple(offered) == tuple(expected) else f"{name} is {tuple(offered)}, here {tuple(expected)}"
