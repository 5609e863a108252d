import math

from hypothesis import given
from hypothesis import strategies as st

from focus.search.allocators import Session
from focus.search.frontier import Frontier


class Board(Session):
    """Scores and gates that a test may rewrite at will."""

    def __init__(self) -> None:
        self.scores: dict[int, float] = {}
        self.open: dict[int, bool] = {}
        self.entered_in_order: list[int] = []

    def score(self, node_id: int) -> float:
        return self.scores[node_id]

    def entered(self, node_id: int) -> None:
        self.entered_in_order.append(node_id)


def frontier_of(board: Board) -> Frontier:
    return Frontier(board, is_open=lambda node: board.open[node], band_of=lambda node: node % 3)


scores = st.sampled_from([math.nan, -math.inf, math.inf, -1.0, -0.0, 0.0, 0.5, 1.0])
changes = st.lists(
    st.tuples(
        st.integers(0, 12),
        scores | st.floats(),
        st.booleans(),
        st.sets(st.integers(0, 2)),
    ),
    max_size=60,
)


@given(changes)
def test_the_heap_answers_like_a_rescan(history):
    board = Board()
    frontier = frontier_of(board)
    for node, score, is_open, affordable in history:
        board.scores[node], board.open[node] = score, is_open
        frontier.refresh([node])
        eligible = {n: s for n, s in board.scores.items() if board.open[n] and s > -math.inf}
        assert len(frontier) == len(eligible)
        within = {n: s for n, s in eligible.items() if n % 3 in affordable}
        choice = frontier.best(affords=affordable.__contains__)
        if not within:
            assert choice is None
        else:
            assert choice.node == min(within, key=lambda n: (-within[n], n))
            assert choice.score == within[choice.node]
            assert choice.rivals == len(within) - 1


def test_a_checkpoint_enters_again_each_time_its_gate_opens():
    board = Board()
    frontier = frontier_of(board)
    board.scores[1] = 0.0
    for is_open in (True, True, False, True):
        board.open[1] = is_open
        frontier.refresh([1])
    assert board.entered_in_order == [1, 1]
