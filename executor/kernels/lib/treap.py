"""The values of the groups of a changing relation: counted in a treap, or listed in a chain.

Counted: each group has a treap of its distinct values (Seidel and Aragon: Randomized Search Trees,
1996). A node stores the number of values in its subtree and the count of the subtree's most
frequent value. Inserting a value, removing it, finding the n-th value and finding the most frequent
value take logarithmic time. Listed: each group has a chain of its rows in order of arrival.

A node is a row of words; ``-1`` means no node. ``control`` holds the first free node, the number of
nodes ever in use, the number of nodes in use, and the state of the random number generator.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from cql.executor.jit.decorators import njit

FREE, USED, LIVE, RANDOM = range(4)
#: Words of a node of a treap.
VALUE, COUNT, TOTAL, MOST, LEFT, RIGHT, PRIORITY = range(7)
#: Words of a node of a chain; the values of the row follow from ``FIRST`` on.
NEXT, TIME, SEQUENCE, FIRST = range(4)
#: The order of words: as integers, as doubles, or by the rank of a code.
AS_INTEGERS, AS_DOUBLES, BY_RANK = range(3)
#: The words of a log of sessions, whose values are chains.
LOG = (
    "chain",  # the address of its nodes
    "width",  # words of a node
    "free",  # the first free node
    "sorted",  # whether its lists are sorted by time
    "element",  # bytes of an element of its lists, negative for fractions
    "dictionary",  # the address of ``Dictionary.control``
    "depth",  # of its lists in the dictionary
)
CHAIN, WIDTH, FREE_NODE, BY_TIME, ELEMENT, DICTIONARY, LIST_DEPTH = range(len(LOG))
#: An upper bound for the depth of a treap.
DEPTH = 1024
_MAGNITUDE = 2**63 - 1


@njit("int64(int64, int64, int32[::1])", nogil=True, cache=True)
def _key(word: int, how: int, rank: Any) -> int:
    """An integer that sorts like the value of the word."""
    if how == AS_DOUBLES:
        return word ^ _MAGNITUDE if word < 0 else word
    if how == BY_RANK:
        return int(rank[word])
    return word


@njit("int64(int64[:, ::1], int64[::1], int64)", nogil=True, cache=True)
def take_node(nodes: Any, control: Any, link: int) -> int:
    """Takes a free node; the caller provides one. ``link``: the word that chains free nodes."""
    node = control[FREE]
    if node < 0:
        node = control[USED]
        control[USED] += 1
    else:
        control[FREE] = nodes[node, link]
    control[LIVE] += 1
    return int(node)


@njit("void(int64[:, ::1], int64[::1], int64, int64)", nogil=True, cache=True)
def free_node(nodes: Any, control: Any, link: int, node: int) -> None:
    for word in range(nodes.shape[1]):
        nodes[node, word] = -1  # compaction of the dictionary must not keep the node's codes
    nodes[node, link] = control[FREE]
    control[FREE] = node
    control[LIVE] -= 1


@njit("void(int64[:, ::1], int64, boolean)", nogil=True, cache=True)
def sum_below(nodes: Any, node: int, distinct: bool) -> None:
    own = np.int64(1) if distinct else nodes[node, COUNT]
    total, most = own, own
    for side in (LEFT, RIGHT):
        child = nodes[node, side]
        if child >= 0:
            total += nodes[child, TOTAL]
            most = max(most, nodes[child, MOST])
    nodes[node, TOTAL], nodes[node, MOST] = total, most


@njit("int64(int64[::1])", nogil=True, cache=True)
def next_priority(control: Any) -> int:
    """The next random number."""
    x = control[RANDOM]
    x ^= x << 13
    x ^= (x >> 7) & ((1 << 57) - 1)
    x ^= x << 17
    control[RANDOM] = x
    return int(x)


@njit(
    "int64(int64[:, ::1], int64[::1], int64, boolean, int64[::1], int64, boolean)",
    nogil=True,
    cache=True,
)
def insert_node(
    nodes: Any, root: Any, node: int, left: bool, path: Any, depth: int, distinct: bool
) -> int:
    """Inserts a node with its value, count and priority, on the ``left`` or right side below the
    last of the ``depth`` nodes of a path. Returns the number of nodes of the path that are above
    the node then; the caller updates the sums of these."""
    below = above = -1  # the subtrees of smaller and of larger values
    while depth > 0 and nodes[path[depth - 1], PRIORITY] < nodes[node, PRIORITY]:
        depth -= 1
        at = path[depth]
        if left:
            nodes[at, LEFT], above = above, at
        else:
            nodes[at, RIGHT], below = below, at
        sum_below(nodes, at, distinct)
        left = depth > 0 and nodes[path[depth - 1], LEFT] == at
    nodes[node, LEFT], nodes[node, RIGHT] = below, above
    sum_below(nodes, node, distinct)
    if depth == 0:
        root[0] = node
    else:
        nodes[path[depth - 1], LEFT if left else RIGHT] = node
    return depth


@njit("void(int64[:, ::1], int64[::1], int64, int64[::1], int64, boolean)", nogil=True, cache=True)
def remove_node(nodes: Any, root: Any, node: int, path: Any, depth: int, distinct: bool) -> None:
    """Removes a node below the last of the ``depth`` nodes of a path; the caller updates the sums
    of these. ``path`` has room for more nodes."""
    first, parent, side = depth, np.int64(-1), LEFT
    if depth > 0:
        parent = path[depth - 1]
        side = LEFT if nodes[parent, LEFT] == node else RIGHT
    below, above = nodes[node, LEFT], nodes[node, RIGHT]
    while True:
        at = max(below, above)
        last = below < 0 or above < 0
        if not last:
            at = below if nodes[below, PRIORITY] > nodes[above, PRIORITY] else above
        if parent < 0:
            root[0] = at
        else:
            nodes[parent, side] = at
        if last:
            break
        path[depth] = parent = at
        depth += 1
        if at == below:
            side, below = RIGHT, nodes[at, RIGHT]
        else:
            side, above = LEFT, nodes[at, LEFT]
    for j in range(depth - 1, first - 1, -1):
        sum_below(nodes, path[j], distinct)


@njit(
    "int64(int64[:, ::1], int64[::1], int64[::1], int64, int64, boolean, boolean, int64[::1],"
    " int64, boolean)",
    nogil=True,
    cache=True,
)
def count_change(
    nodes: Any,
    control: Any,
    root: Any,
    value: int,
    weight: int,
    found: bool,
    left: bool,
    path: Any,
    depth: int,
    distinct: bool,
) -> int:
    """Adds ``weight`` (negative: removes) to the count of a value at the end of a path of ``depth``
    nodes. If ``found``, the last node of the path is the value's own; otherwise it is the parent,
    and the value belongs on its ``left`` or right side. Returns 1 if the value is new, -1 if it is
    gone, else 0. With ``distinct``, the totals count each value once."""
    if found:
        depth -= 1
        at, change = path[depth], 0
        nodes[at, COUNT] += weight
        if nodes[at, COUNT] <= 0:
            remove_node(nodes, root, at, path, depth, distinct)
            free_node(nodes, control, LEFT, at)
            change = -1
        else:
            sum_below(nodes, at, distinct)
    elif weight <= 0:
        return 0
    else:
        at, change = take_node(nodes, control, LEFT), 1
        nodes[at, VALUE], nodes[at, COUNT] = value, weight
        nodes[at, PRIORITY] = next_priority(control)
        depth = insert_node(nodes, root, at, left, path, depth, distinct)
    for j in range(depth - 1, -1, -1):
        sum_below(nodes, path[j], distinct)
    return change


@njit(
    "int64(int64[:, ::1], int64[::1], int64[::1], int64, int64, int64, int32[::1], boolean,"
    " int64[::1])",
    nogil=True,
    cache=True,
)
def count_value(
    nodes: Any,
    control: Any,
    root: Any,
    word: int,
    weight: int,
    how: int,
    rank: Any,
    distinct: bool,
    path: Any,
) -> int:
    """Finds the path to a value and adds ``weight`` to its count (``count_change``)."""
    depth = 0
    at = root[0]
    key = _key(word, how, rank)
    found = left = False
    while at >= 0 and not found:
        path[depth] = at
        depth += 1
        other = _key(nodes[at, VALUE], how, rank)
        found, left = other == key, key < other
        at = nodes[at, LEFT] if left else nodes[at, RIGHT]
    return int(count_change(nodes, control, root, word, weight, found, left, path, depth, distinct))


@njit("void(int64[:, ::1], int64[::1], int64[::1], int64[::1])", nogil=True, cache=True)
def forget_treaps(nodes: Any, control: Any, roots: Any, groups: Any) -> None:
    path = np.empty(DEPTH, np.int64)
    for j in range(groups.size):
        depth = 0
        if roots[groups[j]] >= 0:
            path[0], depth = roots[groups[j]], 1
        while depth:
            depth -= 1
            at = path[depth]
            left, right = nodes[at, LEFT], nodes[at, RIGHT]
            for child in (left, right):
                if child >= 0:
                    path[depth] = child
                    depth += 1
            free_node(nodes, control, LEFT, at)
        roots[groups[j]] = -1


@njit("void(int64[:, ::1], int64[::1], uint8[::1])", nogil=True, cache=True)
def mark_treaps(nodes: Any, roots: Any, marked: Any) -> None:
    """Sets ``marked`` at the nodes of the treaps with the ``roots`` (-1: none)."""
    path = np.empty(DEPTH, np.int64)
    for j in range(roots.size):
        depth = 0
        if roots[j] >= 0:
            path[0], depth = roots[j], 1
        while depth:
            depth -= 1
            at = path[depth]
            marked[at] = 1
            for side in (LEFT, RIGHT):
                if nodes[at, side] >= 0:
                    path[depth] = nodes[at, side]
                    depth += 1


@njit("void(int64[:, ::1], int64[::1], int64[::1], boolean)", nogil=True, cache=True)
def order_again(nodes: Any, control: Any, roots: Any, distinct: bool) -> None:
    """Builds the treaps anew whose values, ordered as integers, have been replaced by others."""
    path, rank = np.empty(DEPTH, np.int64), np.zeros(1, np.int32)
    values, counts = np.empty(control[LIVE], np.int64), np.empty(control[LIVE], np.int64)
    for q in range(roots.size):
        n = depth = 0
        if roots[q] >= 0:
            path[0], depth = roots[q], 1
        while depth:
            depth -= 1
            at = path[depth]
            values[n], counts[n] = nodes[at, VALUE], nodes[at, COUNT]
            n += 1
            for side in (LEFT, RIGHT):
                if nodes[at, side] >= 0:
                    path[depth] = nodes[at, side]
                    depth += 1
            free_node(nodes, control, LEFT, at)
        roots[q] = -1
        for k in range(n):
            count_value(
                nodes, control, roots[q : q + 1], values[k], counts[k], AS_INTEGERS, rank,
                distinct, path,
            )  # fmt: skip


@njit("void(int64[:, ::1], int64[::1], int64[:, ::1], int64[::1])", nogil=True, cache=True)
def forget_chains(nodes: Any, control: Any, ends: Any, groups: Any) -> None:
    for j in range(groups.size):
        at = ends[groups[j], 0]
        while at >= 0:
            following = nodes[at, NEXT]
            free_node(nodes, control, NEXT, at)
            at = following
        ends[groups[j], :] = -1


@njit("void(int64[::1], int64[::1], uint8[::1])", nogil=True, cache=True)
def mark_chains(following: Any, heads: Any, marked: Any) -> None:
    """Sets ``marked`` at the nodes of the chains that begin with ``heads`` (-1: none);
    ``following``: the next node of each."""
    for head in heads:
        while head >= 0:
            marked[head] = 1
            head = following[head]


@njit("int64(int64[:, ::1], int64[::1], int64[::1])", nogil=True, cache=True)
def count_chains(nodes: Any, heads: Any, sizes: Any) -> int:
    """Writes the number of nodes of each chain to ``sizes`` and returns their sum."""
    total = 0
    for j in range(heads.size):
        sizes[j] = 0
        at = heads[j]
        while at >= 0:
            sizes[j] += 1
            at = nodes[at, NEXT]
        total += sizes[j]
    return int(total)


@njit("void(int64[:, ::1], int64[::1], int64[::1], int64[:, ::1])", nogil=True, cache=True)
def take_chains(nodes: Any, control: Any, heads: Any, lines: Any) -> None:
    """Moves the nodes of the chains to ``lines``, one chain after the other, and frees them."""
    n = 0
    for j in range(heads.size):
        at = heads[j]
        while at >= 0:
            following = nodes[at, NEXT]
            for word in range(nodes.shape[1]):
                lines[n, word] = nodes[at, word]
            n += 1
            free_node(nodes, control, NEXT, at)
            at = following
