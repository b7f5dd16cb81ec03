"""The users who may log in, with their salted hashes.

user_log.py          `UserLog`: the credentials as records
user_credentials.py  `UserCredentials`: the table of users, and its changes
"""
