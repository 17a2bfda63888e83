"""Signatures are checked as RFC 8032 says, without a library: its test vectors, and a library to compare
with.
"""

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from refold.store.verify_bundle import ORDER, P, verify_signature

# RFC 8032, 7.1: the public key, the message, the signature.
VECTORS = {
    "TEST 1": (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe2"
        "4655141438e7a100b",
    ),
    "TEST 2": (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aee"
        "b00d291612bb0c00",
    ),
    "TEST 3": (
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28d"
        "c027beceea1ec40a",
    ),
    "TEST SHA(abc)": (
        "ec172b93ad5e563bf4932c70e1245034c35467ef2efd4d64ebf819683467e2bf",
        "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e"
        "2a9ac94fa54ca49f",
        "dc2a4459e7369633a52b1bf277839a00201009a3efbf3ecb69bea2186c26b58909351fc9ac90b3ecfdfbc7c66431e0303dca179c138ac17a"
        "d9bef1177331a704",
    ),
}
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
PUBLIC = KEY.public_key().public_bytes_raw()
MESSAGE = b"what is signed"
SIGNATURE = KEY.sign(MESSAGE)


@pytest.mark.parametrize("name", VECTORS)
def test_the_vectors_of_the_rfc(name: str) -> None:
    """Each signature of the RFC is good, and with a bit of the message changed it is not."""
    key, message, signature = (bytes.fromhex(each) for each in VECTORS[name])
    assert verify_signature(key, message, signature)
    assert not verify_signature(key, message + b"\0", signature)


@given(secret=st.binary(min_size=32, max_size=32), message=st.binary(max_size=200))
def test_what_a_library_signs_is_good(secret: bytes, message: bytes) -> None:
    """Whatever `cryptography` signs is found to be signed, and by that key only."""
    key = Ed25519PrivateKey.from_private_bytes(secret)
    public, signature = key.public_key().public_bytes_raw(), key.sign(message)
    assert verify_signature(public, message, signature)
    assert (public == PUBLIC) == verify_signature(PUBLIC, message, signature)


@given(place=st.integers(0, 511))
def test_any_changed_bit_is_found(place: int) -> None:
    """No bit of a signature can be another."""
    changed = bytearray(SIGNATURE)
    changed[place // 8] ^= 1 << place % 8
    assert not verify_signature(PUBLIC, MESSAGE, bytes(changed))


def same_scalar(signature: bytes) -> bytes:
    return signature[:32] + (int.from_bytes(signature[32:], "little") + ORDER).to_bytes(32, "little")


@pytest.mark.parametrize(
    ("key", "signature"),
    [
        pytest.param(PUBLIC, same_scalar(SIGNATURE), id="S not below the order"),
        pytest.param(PUBLIC, SIGNATURE[:63], id="a short signature"),
        pytest.param(PUBLIC, SIGNATURE + b"\0", id="a long signature"),
        pytest.param(PUBLIC, b"", id="no signature"),
        pytest.param(PUBLIC[:31], SIGNATURE, id="a short key"),
        pytest.param(P.to_bytes(32, "little"), SIGNATURE, id="a key whose y is not below p"),
        pytest.param((2).to_bytes(32, "little"), SIGNATURE, id="a key that is no point"),
        pytest.param((1 | 1 << 255).to_bytes(32, "little"), SIGNATURE, id="a key with x = 0 and a sign"),
        pytest.param(PUBLIC, (P + 1).to_bytes(32, "little") + bytes(32), id="R that is not canonical"),
    ],
)
def test_what_is_not_canonical_is_refused(key: bytes, signature: bytes) -> None:
    """There is one way to write a signature and a key."""
    assert not verify_signature(key, MESSAGE, signature)


def test_a_point_written_otherwise_is_refused() -> None:
    """With S = 0, and the neutral point as key and as R, the equation holds; no other way to write that point
    passes.
    """
    neutral = (1).to_bytes(32, "little")
    assert verify_signature(neutral, MESSAGE, neutral + bytes(32))
    for other in (P + 1, 1 | 1 << 255):
        written = other.to_bytes(32, "little")
        assert not verify_signature(neutral, MESSAGE, written + bytes(32))
        assert not verify_signature(written, MESSAGE, neutral + bytes(32))
