"""Which turns of other conversations stand before a turn, for the control whose history tells nothing."""

from __future__ import annotations

from collections.abc import Sequence

from specs.stages.artifacts import Item
from training.rules.seeded_order import file_order
from training.rules.tasks.conversation import tells, turns_of


def donors(items: Sequence[Item], seed: int) -> list[tuple[int, ...]]:
    """Return for each conversation, turn by turn but the last, the place of the one whose turn is shown instead.

    A donor is another conversation of another kind that has as many turns, is not a donor of this one yet, and whose
    user does not say in that turn what this conversation asks for. Where to begin to look for one is drawn by the seed.

    Raises:
        ValueError: an item is no conversation, or no other one can stand in for a turn of it.
    """
    turns = [turns_of(item) for item in items]
    order = sorted(range(len(items)), key=lambda place: file_order(items[place].id, seed))
    found: list[tuple[int, ...]] = []
    for place, item in enumerate(items):
        chosen: list[int] = []
        for number in range(len(turns[place]) - 1):
            start = int(file_order(f"{item.id}/{number}", seed), 16) % len(order)
            able = (
                other
                for other in (*order[start:], *order[:start])
                if items[other].kind != item.kind
                and number < len(turns[other])
                and other not in chosen
                and not tells(item, turns[other][number])
            )
            donor = next(able, None)
            if donor is None:
                raise ValueError(f"conversation '{item.id}': no other kind has a turn {number + 1} to show instead")
            chosen.append(donor)
        found.append(tuple(chosen))
    return found
