"""A consumer of a share group (KIP-932): its members share the records of partitions, and acknowledge them one by one.

    ShareConsumerCore   the calls of a share consumer, and the end of its block (`core.py`)
    ShareMember         joins the group, and learns the partitions to read (`member.py`, `member_states.py`)
    ShareReader         divides the partitions among their leaders, and bounds the records ahead (`reader.py`)
    NodeReader          the requests to one leader, one after the other (`node_reader.py`)
    ShareSession        one share session: its epochs, its partitions, the records locked in it (`share_session.py`)
    LockWatch, Pace     warns before locks expire; how many records are fetched ahead (`lock_watch.py`, `pace.py`)
    ActivityWatch       makes the member leave if the user's code hangs (`activity_watch.py`)
    UnreportedFailures  failed acknowledgements of which no call knows yet (`unreported_failures.py`)
    LockedRecord        one record between its acquisition and its end, with its lock (`locked_record.py`)

    a record   acquired ──► buffered ──► handed out ──► acknowledged ──► sent ──► stored
                   └────────────┴────────────┴───────────────┴────────────┴──► lost: it will be delivered again

Rules:
- A record belongs to the session in which it was acquired. Its acknowledgement goes out in that session or not at all:
  in another session the same offset may be locked again, for another delivery.
- A session has one request in flight, so the client learns of a new delivery before it sends the next acknowledgement.
- A lost acknowledgement is always reported: to the caller that waits for it, or else by the next call.
"""
