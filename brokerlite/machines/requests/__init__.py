"""Requests that are not answered at once, and the fetch sessions that make them small.

waits           `Waits`: fetches that wait for records, and other delayed answers
sync_waits      `SyncWaits`: answers that wait until the disk has what they say
request_work    `RequestWork`: runs requests that need much computing in threads
fetch_sessions  `FetchSessions`: the partitions that a consumer fetches, remembered between its requests

To change when a waiting fetch is answered, open waits.py; to change how a fetch session begins or ends, open
fetch_sessions.py.
"""
