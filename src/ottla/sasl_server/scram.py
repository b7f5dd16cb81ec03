"""A user's salted hashes, and what SCRAM computes with them.

Rules:
- Names are used as the client gives them, without SASLprep, as in Apache Kafka.

This is not `scramp`'s server, because that one prepares names, and refuses salts that Kafka's tools create.

Source: RFC 5802 (SCRAM), RFC 7677; ScramFormatter.java, ScramMessages.java.
"""

import base64
import binascii
import hashlib
import hmac
import re
from typing import NamedTuple

SHA_256, SHA_512 = "SCRAM-SHA-256", "SCRAM-SHA-512"
HASHES = {SHA_256: "sha256", SHA_512: "sha512"}
"""Mechanism -> the name of its hash."""
LEAST_ITERATIONS, MOST_ITERATIONS = 4096, 16_384
"""As Apache Kafka allows: fewer are too easy to guess, and more keep a processor busy."""

_FIRST = re.compile(r"([ny],(?:a=([^,]+))?,)(n=([^,]+),r=([\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]=[^,]*)*)")
_FINAL = re.compile(r"(c=([A-Za-z0-9+/=]+),r=([\x21-\x2b\x2d-\x7e]+)(?:,[A-Za-z]=[^,]*)*),p=([A-Za-z0-9+/=]+)")


class Malformed(ValueError):
    """A token is no message of its mechanism."""


class ScramCredential(NamedTuple):
    """The salted hashes of a password; they do not suffice to log in.

    Attributes:
        mechanism: `SHA_256` or `SHA_512`.
    """

    mechanism: str
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __repr__(self) -> str:
        return f"<{self.mechanism} credential>"

    def accepts(self, password: str) -> bool:
        """Whether this is the password; blocks for some milliseconds."""
        salted = salted_password(self.mechanism, password, self.salt, self.iterations)
        stored, _ = _keys(HASHES[self.mechanism], salted)
        return hmac.compare_digest(stored, self.stored_key)


def salted_password(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """RFC 5802's ``Hi``; blocks for some milliseconds."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def credential_of(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a salted password."""
    return ScramCredential(mechanism, salt, iterations, *_keys(HASHES[mechanism], salted))


def credential_for(mechanism: str, password: str, salt: bytes, iterations: int) -> ScramCredential:
    """The credential of a password; blocks for some milliseconds."""
    return credential_of(mechanism, salted_password(mechanism, password, salt, iterations), salt, iterations)


def _keys(name: str, salted: bytes) -> tuple[bytes, bytes]:
    """The stored key and the server key."""
    client_key = hmac.digest(salted, b"Client Key", name)
    return hashlib.new(name, client_key).digest(), hmac.digest(salted, b"Server Key", name)


class ClientFirst(NamedTuple):
    """The client's first message."""

    header: str
    authorization_id: str | None
    bare: str
    user: str
    nonce: str


def parse_first(token: bytes) -> ClientFirst:
    """Parse the client's first message; raises `Malformed`."""
    if (found := _FIRST.fullmatch(_text(token))) is None:
        raise Malformed
    header, other, bare, user, nonce = found.groups()
    return ClientFirst(header, None if other is None else _name(other), bare, _name(user), nonce)


def build_first(nonce: str, credential: ScramCredential) -> str:
    """The server's first message."""
    return f"r={nonce},s={base64.b64encode(credential.salt).decode()},i={credential.iterations}"


class ClientFinal(NamedTuple):
    """The client's final message."""

    without_proof: str
    binding: str
    nonce: str
    proof: bytes


def parse_final(token: bytes) -> ClientFinal:
    """Parse the client's final message; raises `Malformed`."""
    if (found := _FINAL.fullmatch(_text(token))) is None:
        raise Malformed
    without_proof, binding, nonce, proof = found.groups()
    try:
        return ClientFinal(without_proof, binding, nonce, base64.b64decode(proof, validate=True))
    except binascii.Error:
        raise Malformed from None


def proves(credential: ScramCredential, message: bytes, proof: bytes) -> bool:
    """Whether the proof shows that its sender knows the password; ``message`` is RFC 5802's AuthMessage."""
    name = HASHES[credential.mechanism]
    signature = hmac.digest(credential.stored_key, message, name)
    if len(proof) != len(signature):
        return False
    key = (int.from_bytes(signature, "big") ^ int.from_bytes(proof, "big")).to_bytes(len(proof), "big")
    return hmac.compare_digest(hashlib.new(name, key).digest(), credential.stored_key)


def build_final(credential: ScramCredential, message: bytes) -> bytes:
    """The server's final message, which proves that the server knows the credential."""
    signature = hmac.digest(credential.server_key, message, HASHES[credential.mechanism])
    return b"v=" + base64.b64encode(signature)


def _text(token: bytes) -> str:
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise Malformed from None


def _name(text: str) -> str:
    """A name, in which ``=2C`` stands for a comma and ``=3D`` for an equals sign."""
    if re.search("=(?!2C|3D)", text):
        raise Malformed
    return text.replace("=2C", ",").replace("=3D", "=")
