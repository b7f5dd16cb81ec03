"""SASL as a listener speaks it: who a client is. No socket and no clock here; threads and HTTP in two modules only.

    session.py      `SaslSession`: the requests of one connection, from the first byte to the end of its session
    exchanges.py    the mechanisms, token by token: PLAIN, SCRAM, OAUTHBEARER
    scram.py        a user's salted hashes, and the messages of SCRAM
    users.py        `UserTable`: the users with their hashes
    passwords.py    `PasswordCheck`: passwords against these hashes, in a thread, with a short cache
    tokens.py       `TokenCheck`: JWTs (needs joserfc)
    keys.py         `SigningKeys`: the keys of a JWKS, of a file or a URL
    settings.py     `SaslSettings`

Rules:
- Before a client has authenticated, only ApiVersions, SaslHandshake and SaslAuthenticate are allowed. Any other request
  closes the connection, as in Apache Kafka.
- Secrets are compared in constant time. No message, log line or `repr` has a password, a hash, a token or a nonce.
- An unknown user gets the same messages as a known one with a wrong password, computed at the same cost: a salt that is
  derived from the name, and an error in the end. (Apache Kafka refuses unknown users of SCRAM at once.)
- Hashes that take long, and signatures, are checked in threads (`Check`); the loop computes a few HMACs at most.

Source: SaslServerAuthenticator.java; PlainSaslServer.java; ScramSaslServer.java; OAuthBearerSaslServer.java; KIP-43,
KIP-152, KIP-368; RFC 4616, 5802, 7628.
"""
