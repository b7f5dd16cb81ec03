"""The ACLs of a broker: who may do what.

- `acl_log`: stores ACLs as records of an internal topic.
- `stored_acls`: the ACLs that are in effect, and their changes.
- `acl_settings`: the settings.
"""
