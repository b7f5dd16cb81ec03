"""The client's protocol logic: pure state machines without trio, clock, socket or chance.

`core.ClientCore` is the whole client; the other files are its parts. Time comes in as ``now`` (seconds, any
monotonic clock), chance as a `random.Random`, bytes as events; what is to be done comes out as actions.
"""
