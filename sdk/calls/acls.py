"""ACLs: create, describe and delete them.

Rules:
- ACLs are a set: to create an existing ACL changes nothing, so a retry needs no care.
- A retry of DeleteAcls may find nothing, because the first request has deleted the ACLs.
- If all ACLs of a call fail for the same reason, its error is raised; otherwise `PartialFailure` has each.
"""

from collections.abc import Iterable, Mapping, Sequence

from ottla.codec.apis.create_acls import (
    AclCreation,
    AclOperation,
    AclPermissionType,
    CreateAclsRequest,
    CreateAclsResponse,
    PatternType,
    ResourceType,
)
from ottla.codec.apis.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ottla.codec.apis.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from ottla.errors import OttlaError, PartialFailure, RemoteProtocolError, broker_error
from ottla.sdk.acls import (
    OPERATIONS,
    RESOURCE_TYPES,
    AclBinding,
    AclBindingFilter,
    check_new,
    name_of,
    pattern_code,
)
from ottla.sdk.arguments import several
from ottla.sdk.calls.task import Task
from ottla.sdk.core import ClientCore
from ottla.sdk.outcome import Outcome
from ottla.sdk.steps import Steps


def create_acls(core: ClientCore, given: Iterable[AclBinding], now: float) -> Outcome[None]:
    """Create ACLs.

    Raises:
        ConfigurationError: an ACL would have no effect.
    """
    acls = several("acls", AclBinding, given)
    for acl in acls:
        check_new(acl)
    request = CreateAclsRequest(creations=tuple(map(_creation, acls)))

    def judge(answer: CreateAclsResponse) -> OttlaError | None:
        return _retriable("CreateAcls", len(acls), [each.error_code for each in answer.results])

    def work(task: Task[None]) -> Steps[None]:
        answer: CreateAclsResponse = yield from task.ask(core.controller, request, judge)
        failures = {
            str(acl): broker_error(each.error_code, each.error_message or str(acl))
            for acl, each in zip(acls, answer.results, strict=True)
            if each.error_code
        }
        _raise("creating ACLs", tuple(acl for acl in acls if str(acl) not in failures), failures)

    return Task(core, "creating ACLs", now, work).outcome


def describe_acls(core: ClientCore, wanted: AclBindingFilter | None, now: float) -> Outcome[tuple[AclBinding, ...]]:
    """Return the ACLs that a filter matches, or all, sorted by resource."""
    asked = _filter(wanted or AclBindingFilter())
    request = DescribeAclsRequest(**{field: getattr(asked, field) for field in asked.__dataclass_fields__})

    def judge(answer: DescribeAclsResponse) -> OttlaError | None:
        return broker_error(answer.error_code, answer.error_message or "DescribeAcls") if answer.error_code else None

    def work(task: Task[tuple[AclBinding, ...]]) -> Steps[tuple[AclBinding, ...]]:
        answer: DescribeAclsResponse = yield from task.ask(core.any_node, request, judge)
        return _sorted(_binding(resource, acl) for resource in answer.resources for acl in resource.acls)

    return Task(core, "describing ACLs", now, work).outcome


def delete_acls(core: ClientCore, given: Iterable[AclBindingFilter], now: float) -> Outcome[tuple[AclBinding, ...]]:
    """Delete the ACLs that filters match; return them, sorted by resource."""
    filters = several("filters", AclBindingFilter, given)
    request = DeleteAclsRequest(filters=tuple(map(_filter, filters)))

    def judge(answer: DeleteAclsResponse) -> OttlaError | None:
        return _retriable("DeleteAcls", len(filters), [each.error_code for each in answer.filter_results])

    def work(task: Task[tuple[AclBinding, ...]]) -> Steps[tuple[AclBinding, ...]]:
        answer: DeleteAclsResponse = yield from task.ask(core.controller, request, judge)
        failures: dict[str, OttlaError] = {}
        deleted: dict[AclBinding, None] = {}
        for asked, result in zip(filters, answer.filter_results, strict=True):
            if result.error_code:
                failures[str(asked)] = broker_error(result.error_code, result.error_message or str(asked))
            for each in result.matching_acls:
                acl = _binding(each, each)
                if each.error_code:
                    failures[str(acl)] = broker_error(each.error_code, each.error_message or str(acl))
                else:
                    deleted[acl] = None
        found = _sorted(deleted)
        _raise("deleting ACLs", found, failures)
        return found

    return Task(core, "deleting ACLs", now, work).outcome


def _retriable(api: str, asked: int, codes: Sequence[int]) -> OttlaError | None:
    """The error for which the whole request is to be sent again, if there is one."""
    if len(codes) != asked:
        return RemoteProtocolError(f"the response to {api} has {len(codes)} results instead of {asked}")
    errors = (broker_error(code, api) for code in codes if code)
    return next((error for error in errors if error.retriable), None)


def _raise(what: str, found: Sequence[AclBinding], failures: Mapping[str, OttlaError]) -> None:
    if not failures:
        return
    first = next(iter(failures.values()))
    if not found and len({type(error) for error in failures.values()}) == 1:
        raise first
    raise PartialFailure(what, found, failures)


def _sorted(acls: Iterable[AclBinding]) -> tuple[AclBinding, ...]:
    return tuple(sorted(acls, key=lambda acl: (acl.resource_type, acl.name, acl.prefixed, acl.principal, str(acl))))


# -- messages


def _creation(acl: AclBinding) -> AclCreation:
    return AclCreation(
        resource_type=RESOURCE_TYPES[acl.resource_type],
        resource_name=acl.name,
        resource_pattern_type=PatternType.PREFIXED if acl.prefixed else PatternType.LITERAL,
        principal=acl.principal,
        host=acl.host,
        operation=OPERATIONS[acl.operation],
        permission_type=AclPermissionType.DENY if acl.deny else AclPermissionType.ALLOW,
    )


def _filter(wanted: AclBindingFilter) -> DeleteAclsFilter:
    permissions = {None: AclPermissionType.ANY, True: AclPermissionType.DENY, False: AclPermissionType.ALLOW}
    return DeleteAclsFilter(
        resource_type_filter=RESOURCE_TYPES[wanted.resource_type] if wanted.resource_type else ResourceType.ANY,
        resource_name_filter=wanted.name,
        pattern_type_filter=pattern_code(wanted.pattern),
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=OPERATIONS[wanted.operation] if wanted.operation else AclOperation.ANY,
        permission_type=permissions[wanted.deny],
    )


def _binding(
    resource: DescribeAclsResource | DeleteAclsMatchingAcl, acl: AclDescription | DeleteAclsMatchingAcl
) -> AclBinding:
    return AclBinding(
        acl.principal,
        name_of(OPERATIONS, acl.operation),
        name_of(RESOURCE_TYPES, resource.resource_type),
        resource.resource_name,
        prefixed=resource.pattern_type == PatternType.PREFIXED,
        host=acl.host,
        deny=acl.permission_type == AclPermissionType.DENY,
    )
