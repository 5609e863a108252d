"""A tree as plain JSON values and back, payloads left out.

What is kept is enough to give credit again and to derive the same records bit for bit:
prompt ids, every span with its log-probs, values, lineage, provenance and selections.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from focus.errors import FocusError, RecordError, SchemaError
from focus.records.codec import decode_problem, encode_problem
from focus.records.strict_json import Fields
from focus.sampling import Sampling
from focus.tokens import FinishReason, Span
from focus.tree import (
    Edge,
    Identity,
    Node,
    NodeId,
    Provenance,
    Returns,
    Selection,
    Tree,
    TreeHeader,
)

__all__ = ("decode_edge", "decode_tree", "encode_edge", "encode_tree")


def encode_tree(tree: Tree[Any], *, texts: Mapping[NodeId, str] | None = None) -> dict[str, Any]:
    """A settled tree as JSON; floats keep their bits.

    Args:
        tree: any payload; it is not stored.
        texts: decoded text of a node's incoming edge (of the prompt, for the root).

    Raises:
        RecordError: the problem's label or metadata would not come back equal, or a
            text belongs to no node.
    """
    texts = texts or {}
    strangers = [node for node in texts if not 0 <= node < len(tree)]
    if strangers:
        raise RecordError(f"texts name nodes {strangers} of a tree of {len(tree)}")
    return {
        "header": _encode_header(tree.header),
        "nodes": [_encode_node(node, texts.get(node.id)) for node in tree],
        "selections": [_encode_selection(selection) for selection in tree.selections],
    }


def decode_tree(value: Any, *, where: str = "tree") -> tuple[Tree[None], dict[NodeId, str]]:
    """Inverse of `encode_tree`, but for payloads: the tree and its texts.

    Raises:
        SchemaError: another shape or type, or a tree that could not have grown.
    """
    fields = Fields(value, where=where)
    try:
        header = _decode_header(fields.fields("header"))
        tree, texts = _decode_nodes(header, fields.items("nodes"), where)
    except SchemaError:
        raise
    except (FocusError, KeyError) as error:
        raise SchemaError(f"{where}: {error}") from error
    for item in fields.items("selections"):
        tree.selections.append(_decode_selection(Fields(item, where=f"{where}.selections")))
    fields.done()
    return tree, texts


def _encode_header(header: TreeHeader) -> dict[str, Any]:
    identity, sampling, returns = header.identity, header.sampling, header.returns
    return {
        "problem": encode_problem(header.problem),
        "run": identity.run,
        "round": identity.round,
        "attempt": identity.attempt,
        "prompt_ids": list(header.prompt_ids),
        "sampling": {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            "top_k": sampling.top_k,
            "max_tokens": sampling.max_tokens,
            "stop": None if sampling.stop is None else list(sampling.stop),
            "seed": sampling.seed,
        },
        "policy_version": header.policy_version,
        "critic_version": header.critic_version,
        "critic_range": list(header.critic_range),
        "returns": {
            "discount": returns.discount,
            "step_weight": returns.step_weight,
            "prior_strength": returns.prior_strength,
        },
        "vocab_size": header.vocab_size,
        "context_limit": header.context_limit,
    }


def _decode_header(fields: Fields) -> TreeHeader:
    low, high = _exactly_two(fields.numbers("critic_range"), f"{fields.where}.critic_range")
    header = TreeHeader(
        problem=decode_problem(fields.raw("problem"), where=f"{fields.where}.problem"),
        identity=Identity(
            run=fields.text("run"),
            round=fields.integer("round"),
            attempt=fields.integer("attempt"),
        ),
        prompt_ids=fields.integers("prompt_ids"),
        sampling=_decode_sampling(fields.fields("sampling")),
        policy_version=fields.text("policy_version"),
        critic_version=fields.text("critic_version"),
        critic_range=(low, high),
        returns=_decode_returns(fields.fields("returns")),
        vocab_size=fields.optional_integer("vocab_size"),
        context_limit=fields.optional_integer("context_limit"),
    )
    fields.done()
    return header


def _exactly_two(numbers: tuple[float, ...], where: str) -> tuple[float, float]:
    if len(numbers) != 2:
        raise SchemaError(f"{where}: expected two numbers, found {len(numbers)}")
    return numbers[0], numbers[1]


def _decode_sampling(fields: Fields) -> Sampling:
    sampling = Sampling(
        temperature=fields.optional_number("temperature"),
        top_p=fields.optional_number("top_p"),
        top_k=fields.optional_integer("top_k"),
        max_tokens=fields.optional_integer("max_tokens"),
        stop=fields.optional_integers("stop"),
        seed=fields.optional_integer("seed", least=None),
    )
    fields.done()
    return sampling


def _decode_returns(fields: Fields) -> Returns:
    returns = Returns(
        discount=fields.number("discount"),
        step_weight=fields.number("step_weight"),
        prior_strength=fields.number("prior_strength"),
    )
    fields.done()
    return returns


def _encode_node(node: Node[Any], text: str | None) -> dict[str, Any]:
    return {
        "parent": node.parent,
        "value": node.value,
        "terminal": node.is_terminal,
        "truncated": node.is_truncated,
        "rebased": None if node.rebased is None else list(node.rebased),
        "text": text,
        "edge": None if node.edge is None else encode_edge(node.edge),
    }


def encode_edge(edge: Edge) -> dict[str, Any]:
    """An edge as JSON; floats keep their bits."""
    source = edge.provenance
    return {
        "kind": edge.kind,
        "finish": edge.finish.value,
        "reward": edge.reward,
        "step_reward": edge.step_reward,
        "duration": edge.duration,
        "expansion": source.expansion,
        "index": source.index,
        "phase": source.phase,
        "request_id": source.request_id,
        "tries": source.tries,
        "policy_version": source.policy_version,
        "spans": [
            {
                "ids": list(span.ids),
                "log_probs": None if span.log_probs is None else list(span.log_probs),
            }
            for span in edge.spans
        ],
    }


def decode_edge(fields: Fields) -> Edge:
    """Inverse of `encode_edge`.

    Raises:
        SchemaError: another shape or type.
    """
    finish = fields.text("finish")
    if finish not in set(FinishReason):
        raise SchemaError(f"{fields.where}.finish: unknown reason {finish!r}")
    edge = Edge(
        kind=fields.text("kind"),
        finish=FinishReason(finish),
        reward=fields.number("reward"),
        step_reward=fields.number("step_reward"),
        duration=fields.integer("duration"),
        provenance=Provenance(
            expansion=fields.integer("expansion"),
            index=fields.integer("index"),
            phase=fields.integer("phase"),
            request_id=fields.text("request_id"),
            tries=fields.integer("tries"),
            policy_version=fields.text("policy_version"),
        ),
        spans=tuple(
            _decode_span(Fields(item, where=f"{fields.where}.spans"))
            for item in fields.items("spans")
        ),
    )
    fields.done()
    return edge


def _decode_span(fields: Fields) -> Span:
    span = Span(fields.integers("ids"), fields.optional_numbers("log_probs"))
    fields.done()
    if span.log_probs is not None and len(span.log_probs) != len(span.ids):
        raise SchemaError(
            f"{fields.where}: {len(span.log_probs)} log-probs for {len(span.ids)} ids"
        )
    return span


def _decode_nodes(
    header: TreeHeader, items: list[Any], where: str
) -> tuple[Tree[None], dict[NodeId, str]]:
    if not items:
        raise SchemaError(f"{where}.nodes: a tree has at least its root")
    texts: dict[NodeId, str] = {}
    tree: Tree[None] | None = None
    for index, item in enumerate(items):
        fields = Fields(item, where=f"{where}.nodes[{index}]")
        text = fields.optional_text("text")
        if text is not None:
            texts[index] = text
        if tree is None:
            tree = _decode_root(header, fields)
        else:
            _attach(tree, fields)
        fields.done()
    assert tree is not None
    return tree, texts


def _decode_root(header: TreeHeader, fields: Fields) -> Tree[None]:
    for name in ("parent", "edge", "rebased"):
        if fields.raw(name) is not None:
            raise SchemaError(f"{fields.where}: the root has no {name}")
    if fields.flag("terminal") or fields.flag("truncated"):
        raise SchemaError(f"{fields.where}: the root has not ended")
    return Tree(header, None, value=fields.optional_number("value"))


def _attach(tree: Tree[None], fields: Fields) -> None:
    tree.attach(
        fields.integer("parent"),
        decode_edge(fields.fields("edge")),
        None,
        value=fields.optional_number("value"),
        is_terminal=fields.flag("terminal"),
        is_truncated=fields.flag("truncated"),
        rebased=fields.optional_integers("rebased"),
    )


def _encode_selection(selection: Selection) -> dict[str, Any]:
    """An untried checkpoint scores +infinity, which JSON cannot say: it is stored as null."""
    return {
        "expansion": selection.expansion,
        "node": selection.node,
        "phase": selection.phase,
        "score": None if selection.score == math.inf else selection.score,
        "rivals": selection.rivals,
        "free_tokens": selection.free_tokens,
    }


def _decode_selection(fields: Fields) -> Selection:
    score = fields.optional_number("score")
    selection = Selection(
        expansion=fields.integer("expansion"),
        node=fields.integer("node"),
        phase=fields.integer("phase"),
        score=math.inf if score is None else score,
        rivals=fields.integer("rivals"),
        free_tokens=fields.optional_integer("free_tokens", least=None),
    )
    fields.done()
    return selection
