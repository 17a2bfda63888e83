"""The Merkle tree: the roots and paths of RFC 9162, by its own recursive definition."""

from collections.abc import Sequence
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from refold.store.seals import EMPTY, MerkleTree, Prover
from refold.store.verify_bundle import leaf_hash, node_hash, root_of

leaves = st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=70)


def root_by_definition(leaf_hashes: Sequence[bytes]) -> bytes:
    """MTH of RFC 9162, 2.1.1."""
    if not leaf_hashes:
        return sha256(b"").digest()
    if len(leaf_hashes) == 1:
        return leaf_hashes[0]
    cut = split(len(leaf_hashes))
    left, right = root_by_definition(leaf_hashes[:cut]), root_by_definition(leaf_hashes[cut:])
    return sha256(b"\1" + left + right).digest()


def path_by_definition(index: int, leaf_hashes: Sequence[bytes]) -> list[bytes]:
    """PATH of RFC 9162, 2.1.3.1."""
    if len(leaf_hashes) == 1:
        return []
    cut = split(len(leaf_hashes))
    if index < cut:
        return [*path_by_definition(index, leaf_hashes[:cut]), root_by_definition(leaf_hashes[cut:])]
    return [*path_by_definition(index - cut, leaf_hashes[cut:]), root_by_definition(leaf_hashes[:cut])]


def split(size: int) -> int:
    """The largest power of two below `size`."""
    return 1 << (size - 1).bit_length() - 1


def tree_of(leaf_hashes: Sequence[bytes]) -> MerkleTree:
    tree = MerkleTree()
    for each in leaf_hashes:
        tree.add(each)
    return tree


def proved(leaf_hashes: Sequence[bytes], *wanted: int) -> Prover:
    prover = Prover(wanted)
    for each in leaf_hashes:
        prover.add(each)
    return prover


@pytest.mark.parametrize("size", [0, 1, 2, 3, 4, 5, 7, 8, 9, 64, 65])
def test_the_root_is_that_of_the_rfc(size: int) -> None:
    """The row of full trees gives the root of the recursive definition, at every size on the way."""
    hashes = [sha256(b"%d" % n).digest() for n in range(size)]
    assert root_by_definition(hashes) == tree_of(hashes).root()
    assert size == tree_of(hashes).size


def test_a_tree_without_leaves_has_a_root() -> None:
    """It is the hash of nothing."""
    assert sha256(b"").digest() == EMPTY == MerkleTree().root() == Prover([]).finish()


def test_leaves_and_nodes_are_told_apart() -> None:
    """A leaf begins with 0, a node with 1, and the fields of a leaf are framed: the bytes are those of the
    reference.
    """
    head = bytes(range(32))
    assert sha256(b"\0" + b"6:run-\xc3\xa4" + b"2:42" + head).digest() == leaf_hash("run-ä", 42, head)
    assert sha256(b"\1" + head + EMPTY).digest() == node_hash(head, EMPTY)


@given(hashes=leaves, data=st.data())
def test_every_path_leads_to_the_root(hashes: list[bytes], data: st.DataObject) -> None:
    """Paths are those of the RFC's definition, however many are made at once, and each leads to the root."""
    wanted = data.draw(st.sets(st.integers(0, len(hashes) - 1)))
    prover = proved(hashes, *wanted)
    root = prover.finish()
    assert tree_of(hashes).root() == root
    assert {n: path_by_definition(n, hashes) for n in wanted} == prover.paths
    assert {root} >= {root_of(hashes[n], n, len(hashes), path) for n, path in prover.paths.items()}


@given(hashes=leaves, data=st.data())
def test_any_change_of_a_proof_leads_elsewhere(hashes: list[bytes], data: st.DataObject) -> None:
    """Another leaf, another index, another path, or a longer or shorter one does not lead to the root."""
    size, index = len(hashes), data.draw(st.integers(0, len(hashes) - 1))
    prover = proved(hashes, index)
    root, path = prover.finish(), prover.paths[index]
    bit = bytes(31) + b"\1"
    assert root != root_of(sha256(hashes[index]).digest(), index, size, path)
    assert root != root_of(hashes[index], index, size, [*path, bit])
    assert root != root_of(hashes[index], size, size, path)
    assert root != root_of(hashes[index], -1, size, path)
    if path:
        place = data.draw(st.integers(0, len(path) - 1))
        assert root != root_of(hashes[index], index, size, [*path[:place], bit, *path[place + 1 :]])
        assert root != root_of(hashes[index], index, size, path[:place] + path[place + 1 :])
        assert root != root_of(hashes[index], index ^ 1, size, path) or hashes[index] == path[0]


@given(hashes=leaves, data=st.data())
def test_a_tree_is_its_beginning_and_the_rest(hashes: list[bytes], data: st.DataObject) -> None:
    """The root over the first leaves, read on the way, is that of a tree that has no others."""
    cut = data.draw(st.integers(0, len(hashes)))
    tree = tree_of(hashes[:cut])
    assert root_by_definition(hashes[:cut]) == tree.root()
    for each in hashes[cut:]:
        tree.add(each)
    assert root_by_definition(hashes) == tree.root()


def test_memory_does_not_grow_with_the_leaves() -> None:
    """A hundred thousand leaves leave as many hashes as the number has binary ones."""
    tree = MerkleTree()
    for _ in range(100_000):
        tree.add(bytes(32))
    assert (100_000).bit_count() == len(tree._row)  # pyright: ignore[reportPrivateUsage]
