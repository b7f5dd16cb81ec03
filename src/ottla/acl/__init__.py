"""Access control as Apache Kafka's StandardAuthorizer decides it, for servers. No I/O and no clock here.

- `acls`: an ACL, and filters that find ACLs.
- `rights`: the operations on types of resources that requests need.
- `authorizer`: decides whether a principal has a right.
- `access`: answers the questions of a server's handlers; without ACLs everyone may do everything.
- `audit`: logs and counts denials.
"""
