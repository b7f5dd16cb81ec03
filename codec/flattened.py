# Generated, do not edit: `make flattened` writes this file from the construct trees of the messages.
"""The programs of the codec's messages as texts, which `ottla.codec.program` reads when a message is first used."""

OPS = {
    "int8": (0, False, 1, 2, 0),
    "int16": (1, False, 2, 2, 0),
    "int32": (2, False, 4, 2, 0),
    "int64": (3, False, 8, 2, 0),
    "uint16": (4, False, 2, 2, 0),
    "uint32": (5, False, 4, 2, 0),
    "zigzag32": (7, False, 1, 2, 0),
    "zigzag64": (8, False, 1, 2, 0),
    "float64": (9, False, 8, 2, 0),
    "bool": (10, False, 1, 2, 0),
    "uuid": (11, False, 16, 2, 0),
    "compact_string": (12, False, 1, 6, 32767),
    "var_string": (12, False, 1, 7, 2147483647),
    "string": (12, False, 2, 1, 32767),
    "compact_string?": (12, True, 1, 6, 32767),
    "string?": (12, True, 2, 1, 32767),
    "compact_bytes": (13, False, 1, 6, 2147483647),
    "var_bytes": (13, False, 1, 7, 2147483647),
    "bytes": (13, False, 4, 2, 2147483647),
    "var_bytes?": (13, True, 1, 7, 2147483647),
    "bytes?": (13, True, 4, 2, 2147483647),
    "compact_window": (14, False, 1, 6, 2147483647),
    "window": (14, False, 4, 2, 2147483647),
    "compact_window?": (14, True, 1, 6, 2147483647),
    "window?": (14, True, 4, 2, 2147483647),
    "compact_array": (15, False, 1, 6, 2147483647),
    "var_array": (15, False, 1, 7, 2147483647),
    "short_array": (15, False, 2, 1, 32767),
    "array": (15, False, 4, 2, 2147483647),
    "compact_array?": (15, True, 1, 6, 2147483647),
    "array?": (15, True, 4, 2, 2147483647),
    "struct": (16, False, 0, 0, 0),
    "struct?": (16, True, 1, 0, 0),
    "compact_struct?": (16, True, 1, 6, 0),
}
"""Word -> code, whether null is allowed, least size, code of the length, longest length."""

PROGRAMS = {
    "ottla.codec.apis.add_offsets_to_txn": {
        "AddOffsetsToTxnRequest": {
            "0-2": "transactional_id string, producer_id int64, producer_epoch int16, group_id string",
            "3-4 flexible": "transactional_id compact_string, producer_id int64, producer_epoch int16, group_id compact_string",
        },
        "AddOffsetsToTxnResponse": {
            "0-2": "throttle_time_ms int32, error_code int16",
            "3-4 flexible": "throttle_time_ms int32, error_code int16",
        },
    },
    "ottla.codec.apis.add_partitions_to_txn": {
        "AddPartitionsToTxnRequest": {
            "0-2": "v3_and_below_transactional_id string, v3_and_below_producer_id int64, v3_and_below_producer_epoch int16, v3_and_below_topics array struct",
            "3 flexible": "v3_and_below_transactional_id compact_string, v3_and_below_producer_id int64, v3_and_below_producer_epoch int16, v3_and_below_topics compact_array struct",
            "4-5 flexible": "transactions compact_array struct",
        },
        "AddPartitionsToTxnTopic": {
            "0-2": "name string, partitions array int32",
            "3-5 flexible": "name compact_string, partitions compact_array int32",
        },
        "AddPartitionsToTxnTransaction": {
            "4-5 flexible": "transactional_id compact_string, producer_id int64, producer_epoch int16, verify_only bool, topics compact_array struct",
        },
        "AddPartitionsToTxnResponse": {
            "0-2": "throttle_time_ms int32, results_by_topic_v3_and_below array struct",
            "3 flexible": "throttle_time_ms int32, results_by_topic_v3_and_below compact_array struct",
            "4-5 flexible": "throttle_time_ms int32, error_code int16, results_by_transaction compact_array struct",
        },
        "AddPartitionsToTxnTopicResult": {
            "0-2": "name string, results_by_partition array struct",
            "3-5 flexible": "name compact_string, results_by_partition compact_array struct",
        },
        "AddPartitionsToTxnPartitionResult": {
            "0-2": "partition_index int32, partition_error_code int16",
            "3-5 flexible": "partition_index int32, partition_error_code int16",
        },
        "AddPartitionsToTxnResult": {
            "4-5 flexible": "transactional_id compact_string, topic_results compact_array struct",
        },
    },
    "ottla.codec.apis.add_raft_voter": {
        "AddRaftVoterRequest": {
            "0 flexible": "cluster_id compact_string?, timeout_ms int32, voter_id int32, voter_directory_id uuid, listeners compact_array struct",
            "1 flexible": "cluster_id compact_string?, timeout_ms int32, voter_id int32, voter_directory_id uuid, listeners compact_array struct, ack_when_committed bool",
        },
        "Listener": {
            "0-1 flexible": "name compact_string, host compact_string, port uint16",
        },
        "AddRaftVoterResponse": {
            "0-1 flexible": "throttle_time_ms int32, error_code int16, error_message compact_string?",
        },
    },
    "ottla.codec.apis.alter_client_quotas": {
        "AlterClientQuotasRequest": {
            "0": "entries array struct, validate_only bool",
            "1 flexible": "entries compact_array struct, validate_only bool",
        },
        "EntryData": {
            "0": "entity array struct, ops array struct",
            "1 flexible": "entity compact_array struct, ops compact_array struct",
        },
        "EntityData": {
            "0": "entity_type string, entity_name string?",
            "1 flexible": "entity_type compact_string, entity_name compact_string?",
        },
        "OpData": {
            "0": "key string, value float64, remove bool",
            "1 flexible": "key compact_string, value float64, remove bool",
        },
        "AlterClientQuotasResponse": {
            "0": "throttle_time_ms int32, entries array struct",
            "1 flexible": "throttle_time_ms int32, entries compact_array struct",
        },
        "EntryDataResponse": {
            "0": "error_code int16, error_message string?, entity array struct",
            "1 flexible": "error_code int16, error_message compact_string?, entity compact_array struct",
        },
    },
    "ottla.codec.apis.alter_configs": {
        "AlterConfigsRequest": {
            "0-1": "resources array struct, validate_only bool",
            "2 flexible": "resources compact_array struct, validate_only bool",
        },
        "AlterConfigsResource": {
            "0-1": "resource_type int8, resource_name string, configs array struct",
            "2 flexible": "resource_type int8, resource_name compact_string, configs compact_array struct",
        },
        "AlterableConfig": {
            "0-1": "name string, value string?",
            "2 flexible": "name compact_string, value compact_string?",
        },
        "AlterConfigsResponse": {
            "0-1": "throttle_time_ms int32, responses array struct",
            "2 flexible": "throttle_time_ms int32, responses compact_array struct",
        },
        "AlterConfigsResourceResponse": {
            "0-1": "error_code int16, error_message string?, resource_type int8, resource_name string",
            "2 flexible": "error_code int16, error_message compact_string?, resource_type int8, resource_name compact_string",
        },
    },
    "ottla.codec.apis.alter_partition_reassignments": {
        "AlterPartitionReassignmentsRequest": {
            "0 flexible": "timeout_ms int32, topics compact_array struct",
            "1 flexible": "timeout_ms int32, allow_replication_factor_change bool, topics compact_array struct",
        },
        "ReassignableTopic": {
            "0-1 flexible": "name compact_string, partitions compact_array struct",
        },
        "ReassignablePartition": {
            "0-1 flexible": "partition_index int32, replicas compact_array? int32",
        },
        "AlterPartitionReassignmentsResponse": {
            "0 flexible": "throttle_time_ms int32, error_code int16, error_message compact_string?, responses compact_array struct",
            "1 flexible": "throttle_time_ms int32, allow_replication_factor_change bool, error_code int16, error_message compact_string?, responses compact_array struct",
        },
        "ReassignableTopicResponse": {
            "0-1 flexible": "name compact_string, partitions compact_array struct",
        },
        "ReassignablePartitionResponse": {
            "0-1 flexible": "partition_index int32, error_code int16, error_message compact_string?",
        },
    },
    "ottla.codec.apis.alter_replica_log_dirs": {
        "AlterReplicaLogDirsRequest": {
            "0-1": "dirs array struct",
            "2 flexible": "dirs compact_array struct",
        },
        "AlterReplicaLogDir": {
            "0-1": "path string, topics array struct",
            "2 flexible": "path compact_string, topics compact_array struct",
        },
        "AlterReplicaLogDirTopic": {
            "0-1": "name string, partitions array int32",
            "2 flexible": "name compact_string, partitions compact_array int32",
        },
        "AlterReplicaLogDirsResponse": {
            "0-1": "throttle_time_ms int32, results array struct",
            "2 flexible": "throttle_time_ms int32, results compact_array struct",
        },
        "AlterReplicaLogDirTopicResult": {
            "0-1": "topic_name string, partitions array struct",
            "2 flexible": "topic_name compact_string, partitions compact_array struct",
        },
        "AlterReplicaLogDirPartitionResult": {
            "0-1": "partition_index int32, error_code int16",
            "2 flexible": "partition_index int32, error_code int16",
        },
    },
    "ottla.codec.apis.alter_share_group_offsets": {
        "AlterShareGroupOffsetsRequest": {
            "0 flexible": "group_id compact_string, topics compact_array struct",
        },
        "AlterShareGroupOffsetsRequestTopic": {
            "0 flexible": "topic_name compact_string, partitions compact_array struct",
        },
        "AlterShareGroupOffsetsRequestPartition": {
            "0 flexible": "partition_index int32, start_offset int64",
        },
        "AlterShareGroupOffsetsResponse": {
            "0 flexible": "throttle_time_ms int32, error_code int16, error_message compact_string?, responses compact_array struct",
        },
        "AlterShareGroupOffsetsResponseTopic": {
            "0 flexible": "topic_name compact_string, topic_id uuid, partitions compact_array struct",
        },
        "AlterShareGroupOffsetsResponsePartition": {
            "0 flexible": "partition_index int32, error_code int16, error_message compact_string?",
        },
    },
    "ottla.codec.apis.alter_user_scram_credentials": {
        "AlterUserScramCredentialsRequest": {
            "0 flexible": "deletions compact_array struct, upsertions compact_array struct",
        },
        "ScramCredentialDeletion": {
            "0 flexible": "name compact_string, mechanism int8",
        },
        "ScramCredentialUpsertion": {
            "0 flexible": "name compact_string, mechanism int8, iterations int32, salt compact_bytes, salted_password compact_bytes",
        },
        "AlterUserScramCredentialsResponse": {
            "0 flexible": "throttle_time_ms int32, results compact_array struct",
        },
        "AlterUserScramCredentialsResult": {
            "0 flexible": "user compact_string, error_code int16, error_message compact_string?",
        },
    },
    "ottla.codec.apis.api_versions": {
        "ApiVersionsRequest": {
            "0-2": "",
            "3-4 flexible": "client_software_name compact_string, client_software_version compact_string",
            "5 flexible": "client_software_name compact_string, client_software_version compact_string, cluster_id compact_string?, node_id int32",
        },
        "ApiVersionsResponse": {
            "0": "error_code int16, api_keys array struct",
            "1-2": "error_code int16, api_keys array struct, throttle_time_ms int32",
            "3-5 flexible": "error_code int16, api_keys compact_array struct, throttle_time_ms int32, supported_features compact_array struct, finalized_features_epoch int64, finalized_features compact_array struct, zk_migration_ready bool",
        },
        "ApiVersion": {
            "0-2": "api_key int16, min_version int16, max_version int16",
            "3-5 flexible": "api_key int16, min_version int16, max_version int16",
        },
        "SupportedFeatureKey": {
            "3-5 flexible": "name compact_string, min_version int16, max_version int16",
        },
        "FinalizedFeatureKey": {
            "3-5 flexible": "name compact_string, max_version_level int16, min_version_level int16",
        },
    },
    "ottla.codec.apis.consumer_group_describe": {
        "ConsumerGroupDescribeRequest": {
            "0-1 flexible": "group_ids compact_array compact_string, include_authorized_operations bool",
        },
        "ConsumerGroupDescribeResponse": {
            "0-1 flexible": "throttle_time_ms int32, groups compact_array struct",
        },
        "DescribedGroup": {
            "0-1 flexible": "error_code int16, error_message compact_string?, group_id compact_string, group_state compact_string, group_epoch int32, assignment_epoch int32, assignor_name compact_string, members compact_array struct, authorized_operations int32",
        },
        "Member": {
            "0 flexible": "member_id compact_string, instance_id compact_string?, rack_id compact_string?, member_epoch int32, client_id compact_string, client_host compact_string, subscribed_topic_names compact_array compact_string, subscribed_topic_regex compact_string?, assignment struct, target_assignment struct",
            "1 flexible": "member_id compact_string, instance_id compact_string?, rack_id compact_string?, member_epoch int32, client_id compact_string, client_host compact_string, subscribed_topic_names compact_array compact_string, subscribed_topic_regex compact_string?, assignment struct, target_assignment struct, member_type int8",
        },
        "Assignment": {
            "0-1 flexible": "topic_partitions compact_array struct",
        },
        "TopicPartitions": {
            "0-1 flexible": "topic_id uuid, topic_name compact_string, partitions compact_array int32",
        },
    },
    "ottla.codec.apis.consumer_group_heartbeat": {
        "ConsumerGroupHeartbeatRequest": {
            "0 flexible": "group_id compact_string, member_id compact_string, member_epoch int32, instance_id compact_string?, rack_id compact_string?, rebalance_timeout_ms int32, subscribed_topic_names compact_array? compact_string, server_assignor compact_string?, topic_partitions compact_array? struct",
            "1 flexible": "group_id compact_string, member_id compact_string, member_epoch int32, instance_id compact_string?, rack_id compact_string?, rebalance_timeout_ms int32, subscribed_topic_names compact_array? compact_string, subscribed_topic_regex compact_string?, server_assignor compact_string?, topic_partitions compact_array? struct",
        },
        "TopicPartitions": {
            "0-1 flexible": "topic_id uuid, partitions compact_array int32",
        },
        "ConsumerGroupHeartbeatResponse": {
            "0-1 flexible": "throttle_time_ms int32, error_code int16, error_message compact_string?, member_id compact_string?, member_epoch int32, heartbeat_interval_ms int32, assignment struct?",
        },
        "Assignment": {
            "0-1 flexible": "topic_partitions compact_array struct",
        },
    },
    "ottla.codec.apis.create_acls": {
        "CreateAclsRequest": {
            "0-1": "creations array struct",
            "2-3 flexible": "creations compact_array struct",
        },
        "AclCreation": {
            "0": "resource_type int8, resource_name string, principal string, host string, operation int8, permission_type int8",
            "1": "resource_type int8, resource_name string, resource_pattern_type int8, principal string, host string, operation int8, permission_type int8",
            "2-3 flexible": "resource_type int8, resource_name compact_string, resource_pattern_type int8, principal compact_string, host compact_string, operation int8, permission_type int8",
        },
        "CreateAclsResponse": {
            "0-1": "throttle_time_ms int32, results array struct",
            "2-3 flexible": "throttle_time_ms int32, results compact_array struct",
        },
        "AclCreationResult": {
            "0-1": "error_code int16, error_message string?",
            "2-3 flexible": "error_code int16, error_message compact_string?",
        },
    },
    "ottla.codec.apis.create_delegation_token": {
        "CreateDelegationTokenRequest": {
            "0-1": "renewers array struct, max_lifetime_ms int64",
            "2 flexible": "renewers compact_array struct, max_lifetime_ms int64",
            "3 flexible": "owner_principal_type compact_string?, owner_principal_name compact_string?, renewers compact_array struct, max_lifetime_ms int64",
        },
        "CreatableRenewers": {
            "0-1": "principal_type string, principal_name string",
            "2-3 flexible": "principal_type compact_string, principal_name compact_string",
        },
        "CreateDelegationTokenResponse": {
            "0-1": "error_code int16, principal_type string, principal_name string, issue_timestamp_ms int64, expiry_timestamp_ms int64, max_timestamp_ms int64, token_id string, hmac bytes, throttle_time_ms int32",
            "2 flexible": "error_code int16, principal_type compact_string, principal_name compact_string, issue_timestamp_ms int64, expiry_timestamp_ms int64, max_timestamp_ms int64, token_id compact_string, hmac compact_bytes, throttle_time_ms int32",
            "3 flexible": "error_code int16, principal_type compact_string, principal_name compact_string, token_requester_principal_type compact_string, token_requester_principal_name compact_string, issue_timestamp_ms int64, expiry_timestamp_ms int64, max_timestamp_ms int64, token_id compact_string, hmac compact_bytes, throttle_time_ms int32",
        },
    },
    "ottla.codec.apis.create_partitions": {
        "CreatePartitionsRequest": {
            "0-1": "topics array struct, timeout_ms int32, validate_only bool",
            "2-3 flexible": "topics compact_array struct, timeout_ms int32, validate_only bool",
        },
        "CreatePartitionsTopic": {
            "0-1": "name string, count int32, assignments array? struct",
            "2-3 flexible": "name compact_string, count int32, assignments compact_array? struct",
        },
        "CreatePartitionsAssignment": {
            "0-1": "broker_ids array int32",
            "2-3 flexible": "broker_ids compact_array int32",
        },
        "CreatePartitionsResponse": {
            "0-1": "throttle_time_ms int32, results array struct",
            "2-3 flexible": "throttle_time_ms int32, results compact_array struct",
        },
        "CreatePartitionsTopicResult": {
            "0-1": "name string, error_code int16, error_message string?",
            "2-3 flexible": "name compact_string, error_code int16, error_message compact_string?",
        },
    },
    "ottla.codec.apis.create_topics": {
        "CreateTopicsRequest": {
            "0": "topics array struct, timeout_ms int32",
            "1-4": "topics array struct, timeout_ms int32, validate_only bool",
            "5-7 flexible": "topics compact_array struct, timeout_ms int32, validate_only bool",
        },
        "CreatableTopic": {
            "0-4": "name string, num_partitions int32, replication_factor int16, assignments array struct, configs array struct",
            "5-7 flexible": "name compact_string, num_partitions int32, replication_factor int16, assignments compact_array struct, configs compact_array struct",
        },
        "CreatableReplicaAssignment": {
            "0-4": "partition_index int32, broker_ids array int32",
            "5-7 flexible": "partition_index int32, broker_ids compact_array int32",
        },
        "CreatableTopicConfig": {
            "0-4": "name string, value string?",
            "5-7 flexible": "name compact_string, value compact_string?",
        },
        "CreateTopicsResponse": {
            "0-1": "topics array struct",
            "2-4": "throttle_time_ms int32, topics array struct",
            "5-7 flexible": "throttle_time_ms int32, topics compact_array struct",
        },
        "CreatableTopicResult": {
            "0": "name string, error_code int16",
            "1-4": "name string, error_code int16, error_message string?",
            "5-6 flexible": "name compact_string, error_code int16, error_message compact_string?, num_partitions int32, replication_factor int16, configs compact_array? struct, topic_config_error_code int16",
            "7 flexible": "name compact_string, topic_id uuid, error_code int16, error_message compact_string?, num_partitions int32, replication_factor int16, configs compact_array? struct, topic_config_error_code int16",
        },
        "CreatableTopicConfigs": {
            "5-7 flexible": "name compact_string, value compact_string?, read_only bool, config_source int8, is_sensitive bool",
        },
    },
    "ottla.codec.apis.delete_acls": {
        "DeleteAclsRequest": {
            "0-1": "filters array struct",
            "2-3 flexible": "filters compact_array struct",
        },
        "DeleteAclsFilter": {
            "0": "resource_type_filter int8, resource_name_filter string?, principal_filter string?, host_filter string?, operation int8, permission_type int8",
            "1": "resource_type_filter int8, resource_name_filter string?, pattern_type_filter int8, principal_filter string?, host_filter string?, operation int8, permission_type int8",
            "2-3 flexible": "resource_type_filter int8, resource_name_filter compact_string?, pattern_type_filter int8, principal_filter compact_string?, host_filter compact_string?, operation int8, permission_type int8",
        },
        "DeleteAclsResponse": {
            "0-1": "throttle_time_ms int32, filter_results array struct",
            "2-3 flexible": "throttle_time_ms int32, filter_results compact_array struct",
        },
        "DeleteAclsFilterResult": {
            "0-1": "error_code int16, error_message string?, matching_acls array struct",
            "2-3 flexible": "error_code int16, error_message compact_string?, matching_acls compact_array struct",
        },
        "DeleteAclsMatchingAcl": {
            "0": "error_code int16, error_message string?, resource_type int8, resource_name string, principal string, host string, operation int8, permission_type int8",
            "1": "error_code int16, error_message string?, resource_type int8, resource_name string, pattern_type int8, principal string, host string, operation int8, permission_type int8",
            "2-3 flexible": "error_code int16, error_message compact_string?, resource_type int8, resource_name compact_string, pattern_type int8, principal compact_string, host compact_string, operation int8, permission_type int8",
        },
    },
    "ottla.codec.apis.delete_groups": {
        "DeleteGroupsRequest": {
            "0-1": "groups_names array string",
            "2-3 flexible": "groups_names compact_array compact_string",
        },
        "DeleteGroupsResponse": {
            "0-1": "throttle_time_ms int32, results array struct",
            "2-3 flexible": "throttle_time_ms int32, results compact_array struct",
        },
        "DeletableGroupResult": {
            "0-1": "group_id string, error_code int16",
            "2 flexible": "group_id compact_string, error_code int16",
            "3 flexible": "group_id compact_string, error_code int16, error_message compact_string?",
        },
    },
    "ottla.codec.apis.delete_records": {
        "DeleteRecordsRequest": {
            "0-1": "topics array struct, timeout_ms int32",
            "2 flexible": "topics compact_array struct, timeout_ms int32",
        },
        "DeleteRecordsTopic": {
            "0-1": "name string, partitions array struct",
            "2 flexible": "name compact_string, partitions compact_array struct",
        },
        "DeleteRecordsPartition": {
            "0-1": "partition_index int32, offset int64",
            "2 flexible": "partition_index int32, offset int64",
        },
        "DeleteRecordsResponse": {
            "0-1": "throttle_time_ms int32, topics array struct",
            "2 flexible": "throttle_time_ms int32, topics compact_array struct",
        },
        "DeleteRecordsTopicResult": {
            "0-1": "name string, partitions array struct",
            "2 flexible": "name compact_string, partitions compact_array struct",
        },
        "DeleteRecordsPartitionResult": {
            "0-1": "partition_index int32, low_watermark int64, error_code int16",
            "2 flexible": "partition_index int32, low_watermark int64, error_code int16",
        },
    },
    "ottla.codec.apis.delete_share_group_offsets": {
        "DeleteShareGroupOffsetsRequest": {
            "0 flexible": "group_id compact_string, topics compact_array struct",
        },
        "DeleteShareGroupOffsetsRequestTopic": {
            "0 flexible": "topic_name compact_string",
        },
        "DeleteShareGroupOffsetsResponse": {
            "0 flexible": "throttle_time_ms int32, error_code int16, error_message compact_string?, responses compact_array struct",
        },
        "DeleteShareGroupOffsetsResponseTopic": {
            "0 flexible": "topic_name compact_string, topic_id uuid, error_code int16, error_message compact_string?",
        },
    },
    "ottla.codec.apis.delete_share_group_state": {
        "DeleteShareGroupStateRequest": {
            "0 flexible": "group_id compact_string, topics compact_array struct",
        },
        "DeleteStateData": {
            "0 flexible": "topic_id uuid, partitions compact_array struct",
        },
        "PartitionData": {
            "0 flexible": "partition int32",
        },
        "DeleteShareGroupStateResponse": {
            "0 flexible": "results compact_array struct",
        },
        "DeleteStateResult": {
            "0 flexible": "topic_id uuid, partitions compact_array struct",
        },
        "PartitionResult": {
            "0 flexible": "partition int32, error_code int16, error_message compact_string?",
        },
    },
    "ottla.codec.apis.delete_topics": {
        "DeleteTopicsRequest": {
            "0-3": "topic_names array string, timeout_ms int32",
            "4-5 flexible": "topic_names compact_array compact_string, timeout_ms int32",
            "6 flexible": "topics compact_array struct, timeout_ms int32",
        },
        "DeleteTopicState": {
            "6 flexible": "name compact_string?, topic_id uuid",
        },
        "DeleteTopicsResponse": {
            "0": "responses array struct",
            "1-3": "throttle_time_ms int32, responses array struct",
            "4-6 flexible": "throttle_time_ms int32, responses compact_array struct",
        },
        "DeletableTopicResult": {
            "0-3": "name string, error_code int16",
            "4 flexible": "name compact_string, error_code int16",
            "5 flexible": "name compact_string, error_code int16, error_message compact_string?",
            "6 flexible": "name compact_string?, topic_id uuid, error_code int16, error_message compact_string?",
        },
    },
    "ottla.codec.apis.describe_acls": {
        "DescribeAclsRequest": {
            "0": "resource_type_filter int8, resource_name_filter string?, principal_filter string?, host_filter string?, operation int8, permission_type int8",
            "1": "resource_type_filter int8, resource_name_filter string?, pattern_type_filter int8, principal_filter string?, host_filter string?, operation int8, permission_type int8",
            "2-3 flexible": "resource_type_filter int8, resource_name_filter compact_string?, pattern_type_filter int8, principal_filter compact_string?, host_filter compact_string?, operation int8, permission_type int8",
        },
        "DescribeAclsResponse": {
            "0-1": "throttle_time_ms int32, error_code int16, error_message string?, resources array struct",
            "2-3 flexible": "throttle_time_ms int32, error_code int16, error_message compact_string?, resources compact_array struct",
        },
        "DescribeAclsResource": {
            "0": "resource_type int8, resource_name string, acls array struct",
            "1": "resource_type int8, resource_name string, pattern_type int8, acls array struct",
            "2-3 flexible": "resource_type int8, resource_name compact_string, pattern_type int8, acls compact_array struct",
        },
        "AclDescription": {
            "0-1": "principal string, host string, operation int8, permission_type int8",
            "2-3 flexible": "principal compact_string, host compact_string, operation int8, permission_type int8",
        },
    },
    "ottla.codec.apis.describe_client_quotas": {
        "DescribeClientQuotasRequest": {
            "0": "components array struct, strict bool",
            "1 flexible": "components compact_array struct, strict bool",
        },
        "ComponentData": {
            "0": "entity_type string, match_type int8, match string?",
            "1 flexible": "entity_type compact_string, match_type int8, match compact_string?",
        },
        "DescribeClientQuotasResponse": {
            "0": "throttle_time_ms int32, error_code int16, error_message string?, entries array? struct",
            "1 flexible": "throttle_time_ms int32, error_code int16, error_message compact_string?, entries compact_array? struct",
        },
        "EntryData": {
            "0": "entity array struct, values array struct",
            "1 flexible": "entity compact_array struct, values compact_array struct",
        },
        "EntityData": {
            "0": "entity_type string, entity_name string?",
            "1 flexible": "entity_type compact_string, entity_name compact_string?",
        },
        "ValueData": {
            "0": "key string, value float64",
            "1 flexible": "key compact_string, value float64",
        },
    },
    "ottla.codec.apis.describe_cluster": {
        "DescribeClusterRequest": {
            "0 flexible": "include_cluster_authorized_operations bool",
            "1 flexible": "include_cluster_authorized_operations bool, endpoint_type int8",
            "2 flexible": "include_cluster_authorized_operations bool, endpoint_type int8, include_fenced_brokers bool",
        },
        "DescribeClusterResponse": {
            "0 flexible": "throttle_time_ms int32, error_code int16, error_message compact_string?, cluster_id compact_string, controller_id int32, brokers compact_array struct, cluster_authorized_operations int32",
            "1-2 flexible": "throttle_time_ms int32, error_code int16, error_message compact_string?, endpoint_type int8, cluster_id compact_string, controller_id int32, brokers compact_array struct, cluster_authorized_operations int32",
        },
        "DescribeClusterBroker": {
            "0-1 flexible": "broker_id int32, host compact_string, port int32, rack compact_string?",
            "2 flexible": "broker_id int32, host compact_string, port int32, rack compact_string?, is_fenced bool",
        },
    },
    "ottla.codec.apis.describe_configs": {
        "DescribeConfigsRequest": {
            "0": "resources array struct",
            "1-2": "resources array struct, include_synonyms bool",
            "3": "resources array struct, include_synonyms bool, include_documentation bool",
            "4 flexible": "resources compact_array struct, include_synonyms bool, include_documentation bool",
        },
        "DescribeConfigsResource": {
            "0-3": "resource_type int8, resource_name string, configuration_keys array? string",
            "4 flexible": "resource_type int8, resource_name compact_string, configuration_keys compact_array? compact_string",
        },
        "DescribeConfigsResponse": {
            "0-3": "throttle_time_ms int32, results array struct",
            "4 flexible": "throttle_time_ms int32, results compact_array struct",
        },
        "DescribeConfigsResult": {
            "0-3": "error_code int16, error_message string?, resource_type int8, resource_name string, configs array struct",
            "4 flexible": "error_code int16, error_message compact_string?, resource_type int8, resource_name compact_string, configs compact_array struct",
        },
        "DescribeConfigsResourceResult": {
            "0": "name string, value string?, read_only bool, is_default bool, is_sensitive bool",
            "1-2": "name string, value string?, read_only bool, config_source int8, is_sensitive bool, synonyms array struct",
            "3": "name string, value string?, read_only bool, config_source int8, is_sensitive bool, synonyms array struct, config_type int8, documentation string?",
            "4 flexible": "name compact_string, value compact_string?, read_only bool, config_source int8, is_sensitive bool, synonyms compact_array struct, config_type int8, documentation compact_string?",
        },
        "DescribeConfigsSynonym": {
            "1-3": "name string, value string?, source int8",
            "4 flexible": "name compact_string, value compact_string?, source int8",
        },
    },
    "ottla.codec.apis.describe_delegation_token": {
        "DescribeDelegationTokenRequest": {
            "0-1": "owners array? struct",
            "2-3 flexible": "owners compact_array? struct",
        },
        "DescribeDelegationTokenOwner": {
            "0-1": "principal_type string, principal_name string",
            "2-3 flexible": "principal_type compact_string, principal_name compact_string",
        },
        "DescribeDelegationTokenResponse": {
            "0-1": "error_code int16, tokens array struct, throttle_time_ms int32",
            "2-3 flexible": "error_code int16, tokens compact_array struct, throttle_time_ms int32",
        },
        "DescribedDelegationToken": {
            "0-1": "principal_type string, principal_name string, issue_timestamp int64, expiry_timestamp int64, max_timestamp int64, token_id string, hmac bytes, renewers array struct",
            "2 flexible": "principal_type compact_string, principal_name compact_string, issue_timestamp int64, expiry_timestamp int64, max_timestamp int64, token_id compact_string, hmac compact_bytes, renewers compact_array struct",
            "3 flexible": "principal_type compact_string, principal_name compact_string, token_requester_principal_type compact_string, token_requester_principal_name compact_string, issue_timestamp int64, expiry_timestamp int64, max_timestamp int64, token_id compact_string, hmac compact_bytes, renewers compact_array struct",
        },
        "DescribedDelegationTokenRenewer": {
            "0-1": "principal_type string, principal_name string",
            "2-3 flexible": "principal_type compact_string, principal_name compact_string",
        },
    },
    "ottla.codec.apis.describe_groups": {
        "DescribeGroupsRequest": {
            "0-2": "groups array string",
            "3-4": "groups array string, include_authorized_operations bool",
            "5-6 flexible": "groups compact_array compact_string, include_authorized_operations bool",
        },
        "DescribeGroupsResponse": {
            "0": "groups array struct",
            "1-4": "throttle_time_ms int32, groups array struct",
            "5-6 flexible": "throttle_time_ms int32, groups compact_array struct",
        },
        "DescribedGroup": {
            "0-2": "error_code int16, group_id string, group_state string, protocol_type string, protocol_data string, members array struct",
            "3-4": "error_code int16, group_id string, group_state string, protocol_type string, protocol_data string, members array struct, authorized_operations int32",
            "5 flexible": "error_code int16, group_id compact_string, group_state compact_string, protocol_type compact_string, protocol_data compact_string, members compact_array struct, authorized_operations int32",
            "6 flexible": "error_code int16, error_message compact_string?, group_id compact_string, group_state compact_string, protocol_type compact_string, protocol_data compact_string, members compact_array struct, authorized_operations int32",
        },
        "DescribedGroupMember": {
            "0-3": "member_id string, client_id string, client_host string, member_metadata bytes, member_assignment bytes",
            "4": "member_id string, group_instance_id string?, client_id string, client_host string, member_metadata bytes, member_assignment bytes",
            "5-6 flexible": "member_id compact_string, group_instance_id compact_string?, client_id compact_string, client_host compact_string, member_metadata compact_bytes, member_assignment compact_bytes",
        },
    },
    "ottla.codec.apis.describe_log_dirs": {
        "DescribeLogDirsRequest": {
            "0-1": "topics array? struct",
            "2-5 flexible": "topics compact_array? struct",
        },
        "DescribableLogDirTopic": {
            "0-1": "topic string, partitions array int32",
            "2-5 flexible": "topic compact_string, partitions compact_array int32",
        },
        "DescribeLogDirsResponse": {
            "0-1": "throttle_time_ms int32, results array struct",
            "2 flexible": "throttle_time_ms int32, results compact_array struct",
            "3-5 flexible": "throttle_time_ms int32, error_code int16, results compact_array struct",
        },
        "DescribeLogDirsResult": {
            "0-1": "error_code int16, log_dir string, topics array struct",
            "2-3 flexible": "error_code int16, log_dir compact_string, topics compact_array struct",
            "4 flexible": "error_code int16, log_dir compact_string, topics compact_array struct, total_bytes int64, usable_bytes int64",
            "5 flexible": "error_code int16, log_dir compact_string, topics compact_array struct, total_bytes int64, usable_bytes int64, is_cordoned bool",
        },
        "DescribeLogDirsTopic": {
            "0-1": "name string, partitions array struct",
            "2-5 flexible": "name compact_string, partitions compact_array struct",
        },
        "DescribeLogDirsPartition": {
            "0-1": "partition_index int32, partition_size int64, offset_lag int64, is_future_key bool",
            "2-5 flexible": "partition_index int32, partition_size int64, offset_lag int64, is_future_key bool",
        },
    },
    "ottla.codec.apis.describe_producers": {
        "DescribeProducersRequest": {
            "0 flexible": "topics compact_array struct",
        },
        "TopicRequest": {
            "0 flexible": "name compact_string, partition_indexes compact_array int32",
        },
        "DescribeProducersResponse": {
            "0 flexible": "throttle_time_ms int32, topics compact_array struct",
        },
        "TopicResponse": {
            "0 flexible": "name compact_string, partitions compact_array struct",
        },
        "PartitionResponse": {
            "0 flexible": "partition_index int32, error_code int16, error_message compact_string?, active_producers compact_array struct",
        },
        "ProducerState": {
            "0 flexible": "producer_id int64, producer_epoch int32, last_sequence int32, last_timestamp int64, coordinator_epoch int32, current_txn_start_offset int64",
        },
    },
    "ottla.codec.apis.describe_quorum": {
        "DescribeQuorumRequest": {
            "0-2 flexible": "topics compact_array struct",
        },
        "TopicDataRequest": {
            "0-2 flexible": "topic_name compact_string, partitions compact_array struct",
        },
        "PartitionDataRequest": {
            "0-2 flexible": "partition_index int32",
        },
        "DescribeQuorumResponse": {
            "0-1 flexible": "error_code int16, topics compact_array struct",
            "2 flexible": "error_code int16, error_message compact_string?, topics compact_array struct, nodes compact_array struct",
        },
        "TopicData": {
            "0-2 flexible": "topic_name compact_string, partitions compact_array struct",
        },
        "PartitionData": {
            "0-1 flexible": "partition_index int32, error_code int16, leader_id int32, leader_epoch int32, high_watermark int64, current_voters compact_array struct, observers compact_array struct",
            "2 flexible": "partition_index int32, error_code int16, error_message compact_string?, leader_id int32, leader_epoch int32, high_watermark int64, current_voters compact_array struct, observers compact_array struct",
        },
        "ReplicaState": {
            "0 flexible": "replica_id int32, log_end_offset int64",
            "1 flexible": "replica_id int32, log_end_offset int64, last_fetch_timestamp int64, last_caught_up_timestamp int64",
            "2 flexible": "replica_id int32, replica_directory_id uuid, log_end_offset int64, last_fetch_timestamp int64, last_caught_up_timestamp int64",
        },
        "Node": {
            "2 flexible": "node_id int32, listeners compact_array struct",
        },
        "Listener": {
            "2 flexible": "name compact_string, host compact_string, port uint16",
        },
    },
    "ottla.codec.apis.describe_share_group_offsets": {
        "DescribeShareGroupOffsetsRequest": {
            "0-1 flexible": "groups compact_array struct",
        },
        "DescribeShareGroupOffsetsRequestGroup": {
            "0-1 flexible": "group_id compact_string, topics compact_array? struct",
        },
        "DescribeShareGroupOffsetsRequestTopic": {
            "0-1 flexible": "topic_name compact_string, partitions compact_array int32",
        },
        "DescribeShareGroupOffsetsResponse": {
            "0-1 flexible": "throttle_time_ms int32, groups compact_array struct",
        },
        "DescribeShareGroupOffsetsResponseGroup": {
            "0-1 flexible": "group_id compact_string, topics compact_array struct, error_code int16, error_message compact_string?",
        },
        "DescribeShareGroupOffsetsResponseTopic": {
            "0-1 flexible": "topic_name compact_string, topic_id uuid, partitions compact_array struct",
        },
        "DescribeShareGroupOffsetsResponsePartition": {
            "0 flexible": "partition_index int32, start_offset int64, leader_epoch int32, error_code int16, error_message compact_string?",
            "1 flexible": "partition_index int32, start_offset int64, leader_epoch int32, lag int64, error_code int16, error_message compact_string?",
        },
    },
    "ottla.codec.apis.describe_topic_partitions": {
        "DescribeTopicPartitionsRequest": {
            "0 flexible": "topics compact_array struct, response_partition_limit int32, cursor struct?",
        },
        "TopicRequest": {
            "0 flexible": "name compact_string",
        },
        "Cursor": {
            "0 flexible": "topic_name compact_string, partition_index int32",
        },
        "DescribeTopicPartitionsResponse": {
            "0 flexible": "throttle_time_ms int32, topics compact_array struct, next_cursor struct?",
        },
        "DescribeTopicPartitionsResponseTopic": {
            "0 flexible": "error_code int16, name compact_string?, topic_id uuid, is_internal bool, partitions compact_array struct, topic_authorized_operations int32",
        },
        "DescribeTopicPartitionsResponsePartition": {
            "0 flexible": "error_code int16, partition_index int32, leader_id int32, leader_epoch int32, replica_nodes compact_array int32, isr_nodes compact_array int32, eligible_leader_replicas compact_array? int32, last_known_elr compact_array? int32, offline_replicas compact_array int32",
        },
    },
    "ottla.codec.apis.describe_transactions": {
        "DescribeTransactionsRequest": {
            "0 flexible": "transactional_ids compact_array compact_string",
        },
        "DescribeTransactionsResponse": {
            "0 flexible": "throttle_time_ms int32, transaction_states compact_array struct",
        },
        "TransactionState": {
            "0 flexible": "error_code int16, transactional_id compact_string, transaction_state compact_string, transaction_timeout_ms int32, transaction_start_time_ms int64, producer_id int64, producer_epoch int16, topics compact_array struct",
        },
        "TopicData": {
            "0 flexible": "topic compact_string, partitions compact_array int32",
        },
    },
    "ottla.codec.apis.describe_user_scram_credentials": {
        "DescribeUserScramCredentialsRequest": {
            "0 flexible": "users compact_array? struct",
        },
        "UserName": {
            "0 flexible": "name compact_string",
        },
        "DescribeUserScramCredentialsResponse": {
            "0 flexible": "throttle_time_ms int32, error_code int16, error_message compact_string?, results compact_array struct",
        },
        "DescribeUserScramCredentialsResult": {
            "0 flexible": "user compact_string, error_code int16, error_message compact_string?, credential_infos compact_array struct",
        },
        "CredentialInfo": {
            "0 flexible": "mechanism int8, iterations int32",
        },
    },
    "ottla.codec.apis.elect_leaders": {
        "ElectLeadersRequest": {
            "0": "topic_partitions array? struct, timeout_ms int32",
            "1": "election_type int8, topic_partitions array? struct, timeout_ms int32",
            "2 flexible": "election_type int8, topic_partitions compact_array? struct, timeout_ms int32",
        },
        "TopicPartitions": {
            "0-1": "topic string, partitions array int32",
            "2 flexible": "topic compact_string, partitions compact_array int32",
        },
        "ElectLeadersResponse": {
            "0": "throttle_time_ms int32, replica_election_results array struct",
            "1": "throttle_time_ms int32, error_code int16, replica_election_results array struct",
            "2 flexible": "throttle_time_ms int32, error_code int16, replica_election_results compact_array struct",
        },
        "ReplicaElectionResult": {
            "0-1": "topic string, partition_result array struct",
            "2 flexible": "topic compact_string, partition_result compact_array struct",
        },
        "PartitionResult": {
            "0-1": "partition_id int32, error_code int16, error_message string?",
            "2 flexible": "partition_id int32, error_code int16, error_message compact_string?",
        },
    },
    "ottla.codec.apis.end_txn": {
        "EndTxnRequest": {
            "0-2": "transactional_id string, producer_id int64, producer_epoch int16, committed bool",
            "3-5 flexible": "transactional_id compact_string, producer_id int64, producer_epoch int16, committed bool",
        },
        "EndTxnResponse": {
            "0-2": "throttle_time_ms int32, error_code int16",
            "3-4 flexible": "throttle_time_ms int32, error_code int16",
            "5 flexible": "throttle_time_ms int32, error_code int16, producer_id int64, producer_epoch int16",
        },
    },
    "ottla.codec.apis.expire_delegation_token": {
        "ExpireDelegationTokenRequest": {
            "0-1": "hmac bytes, expiry_time_period_ms int64",
            "2 flexible": "hmac compact_bytes, expiry_time_period_ms int64",
        },
        "ExpireDelegationTokenResponse": {
            "0-1": "error_code int16, expiry_timestamp_ms int64, throttle_time_ms int32",
            "2 flexible": "error_code int16, expiry_timestamp_ms int64, throttle_time_ms int32",
        },
    },
    "ottla.codec.apis.fetch": {
        "FetchRequest": {
            "0-2": "replica_id int32, max_wait_ms int32, min_bytes int32, topics array struct",
            "3": "replica_id int32, max_wait_ms int32, min_bytes int32, max_bytes int32, topics array struct",
            "4-6": "replica_id int32, max_wait_ms int32, min_bytes int32, max_bytes int32, isolation_level int8, topics array struct",
            "7-10": "replica_id int32, max_wait_ms int32, min_bytes int32, max_bytes int32, isolation_level int8, session_id int32, session_epoch int32, topics array struct, forgotten_topics_data array struct",
            "11": "replica_id int32, max_wait_ms int32, min_bytes int32, max_bytes int32, isolation_level int8, session_id int32, session_epoch int32, topics array struct, forgotten_topics_data array struct, rack_id string",
            "12-14 flexible": "replica_id int32, max_wait_ms int32, min_bytes int32, max_bytes int32, isolation_level int8, session_id int32, session_epoch int32, topics compact_array struct, forgotten_topics_data compact_array struct, rack_id compact_string, cluster_id compact_string?",
            "15-18 flexible": "max_wait_ms int32, min_bytes int32, max_bytes int32, isolation_level int8, session_id int32, session_epoch int32, topics compact_array struct, forgotten_topics_data compact_array struct, rack_id compact_string, cluster_id compact_string?, replica_state struct",
        },
        "FetchTopic": {
            "0-11": "topic string, partitions array struct",
            "12 flexible": "topic compact_string, partitions compact_array struct",
            "13-18 flexible": "topic_id uuid, partitions compact_array struct",
        },
        "FetchPartition": {
            "0-4": "partition int32, fetch_offset int64, partition_max_bytes int32",
            "5-8": "partition int32, fetch_offset int64, log_start_offset int64, partition_max_bytes int32",
            "9-11": "partition int32, current_leader_epoch int32, fetch_offset int64, log_start_offset int64, partition_max_bytes int32",
            "12-16 flexible": "partition int32, current_leader_epoch int32, fetch_offset int64, last_fetched_epoch int32, log_start_offset int64, partition_max_bytes int32",
            "17 flexible": "partition int32, current_leader_epoch int32, fetch_offset int64, last_fetched_epoch int32, log_start_offset int64, partition_max_bytes int32, replica_directory_id uuid",
            "18 flexible": "partition int32, current_leader_epoch int32, fetch_offset int64, last_fetched_epoch int32, log_start_offset int64, partition_max_bytes int32, replica_directory_id uuid, high_watermark int64",
        },
        "ForgottenTopic": {
            "7-11": "topic string, partitions array int32",
            "12 flexible": "topic compact_string, partitions compact_array int32",
            "13-18 flexible": "topic_id uuid, partitions compact_array int32",
        },
        "ReplicaState": {
            "15-18 flexible": "replica_id int32, replica_epoch int64",
        },
        "FetchResponse": {
            "0": "responses array struct",
            "1-6": "throttle_time_ms int32, responses array struct",
            "7-11": "throttle_time_ms int32, error_code int16, session_id int32, responses array struct",
            "12-15 flexible": "throttle_time_ms int32, error_code int16, session_id int32, responses compact_array struct",
            "16-18 flexible": "throttle_time_ms int32, error_code int16, session_id int32, responses compact_array struct, node_endpoints compact_array struct",
        },
        "FetchableTopicResponse": {
            "0-11": "topic string, partitions array struct",
            "12 flexible": "topic compact_string, partitions compact_array struct",
            "13-18 flexible": "topic_id uuid, partitions compact_array struct",
        },
        "PartitionData": {
            "0-3": "partition_index int32, error_code int16, high_watermark int64, records window?",
            "4": "partition_index int32, error_code int16, high_watermark int64, last_stable_offset int64, aborted_transactions array? struct, records window?",
            "5-10": "partition_index int32, error_code int16, high_watermark int64, last_stable_offset int64, log_start_offset int64, aborted_transactions array? struct, records window?",
            "11": "partition_index int32, error_code int16, high_watermark int64, last_stable_offset int64, log_start_offset int64, aborted_transactions array? struct, preferred_read_replica int32, records window?",
            "12-18 flexible": "partition_index int32, error_code int16, high_watermark int64, last_stable_offset int64, log_start_offset int64, aborted_transactions compact_array? struct, preferred_read_replica int32, records compact_window?, diverging_epoch struct, current_leader struct, snapshot_id struct",
        },
        "AbortedTransaction": {
            "4-11": "producer_id int64, first_offset int64",
            "12-18 flexible": "producer_id int64, first_offset int64",
        },
        "EpochEndOffset": {
            "12-18 flexible": "epoch int32, end_offset int64",
        },
        "LeaderIdAndEpoch": {
            "12-18 flexible": "leader_id int32, leader_epoch int32",
        },
        "SnapshotId": {
            "12-18 flexible": "end_offset int64, epoch int32",
        },
        "NodeEndpoint": {
            "16-18 flexible": "node_id int32, host compact_string, port int32, rack compact_string?",
        },
    },
    "ottla.codec.apis.find_coordinator": {
        "FindCoordinatorRequest": {
            "0": "key string",
            "1-2": "key string, key_type int8",
            "3 flexible": "key compact_string, key_type int8",
            "4-6 flexible": "key_type int8, coordinator_keys compact_array compact_string",
        },
        "FindCoordinatorResponse": {
            "0": "error_code int16, node_id int32, host string, port int32",
            "1-2": "throttle_time_ms int32, error_code int16, error_message string?, node_id int32, host string, port int32",
            "3 flexible": "throttle_time_ms int32, error_code int16, error_message compact_string?, node_id int32, host compact_string, port int32",
            "4-6 flexible": "throttle_time_ms int32, coordinators compact_array struct",
        },
        "Coordinator": {
            "4-6 flexible": "key compact_string, node_id int32, host compact_string, port int32, error_code int16, error_message compact_string?",
        },
    },
    "ottla.codec.apis.get_telemetry_subscriptions": {
        "GetTelemetrySubscriptionsRequest": {
            "0 flexible": "client_instance_id uuid",
        },
        "GetTelemetrySubscriptionsResponse": {
            "0 flexible": "throttle_time_ms int32, error_code int16, client_instance_id uuid, subscription_id int32, accepted_compression_types compact_array int8, push_interval_ms int32, telemetry_max_bytes int32, delta_temporality bool, requested_metrics compact_array compact_string",
        },
    },
    "ottla.codec.apis.heartbeat": {
        "HeartbeatRequest": {
            "0-2": "group_id string, generation_id int32, member_id string",
            "3": "group_id string, generation_id int32, member_id string, group_instance_id string?",
            "4 flexible": "group_id compact_string, generation_id int32, member_id compact_string, group_instance_id compact_string?",
        },
        "HeartbeatResponse": {
            "0": "error_code int16",
            "1-3": "throttle_time_ms int32, error_code int16",
            "4 flexible": "throttle_time_ms int32, error_code int16",
        },
    },
    "ottla.codec.apis.incremental_alter_configs": {
        "IncrementalAlterConfigsRequest": {
            "0": "resources array struct, validate_only bool",
            "1 flexible": "resources compact_array struct, validate_only bool",
        },
        "AlterConfigsResource": {
            "0": "resource_type int8, resource_name string, configs array struct",
            "1 flexible": "resource_type int8, resource_name compact_string, configs compact_array struct",
        },
        "AlterableConfig": {
            "0": "name string, config_operation int8, value string?",
            "1 flexible": "name compact_string, config_operation int8, value compact_string?",
        },
        "IncrementalAlterConfigsResponse": {
            "0": "throttle_time_ms int32, responses array struct",
            "1 flexible": "throttle_time_ms int32, responses compact_array struct",
        },
        "AlterConfigsResourceResponse": {
            "0": "error_code int16, error_message string?, resource_type int8, resource_name string",
            "1 flexible": "error_code int16, error_message compact_string?, resource_type int8, resource_name compact_string",
        },
    },
    "ottla.codec.apis.init_producer_id": {
        "InitProducerIdRequest": {
            "0-1": "transactional_id string?, transaction_timeout_ms int32",
            "2 flexible": "transactional_id compact_string?, transaction_timeout_ms int32",
            "3-5 flexible": "transactional_id compact_string?, transaction_timeout_ms int32, producer_id int64, producer_epoch int16",
            "6 flexible": "transactional_id compact_string?, transaction_timeout_ms int32, producer_id int64, producer_epoch int16, enable2pc bool, keep_prepared_txn bool",
        },
        "InitProducerIdResponse": {
            "0-1": "throttle_time_ms int32, error_code int16, producer_id int64, producer_epoch int16",
            "2-5 flexible": "throttle_time_ms int32, error_code int16, producer_id int64, producer_epoch int16",
            "6 flexible": "throttle_time_ms int32, error_code int16, producer_id int64, producer_epoch int16, ongoing_txn_producer_id int64, ongoing_txn_producer_epoch int16",
        },
    },
    "ottla.codec.apis.initialize_share_group_state": {
        "InitializeShareGroupStateRequest": {
            "0 flexible": "group_id compact_string, topics compact_array struct",
        },
        "InitializeStateData": {
            "0 flexible": "topic_id uuid, partitions compact_array struct",
        },
        "PartitionData": {
            "0 flexible": "partition int32, state_epoch int32, start_offset int64",
        },
        "InitializeShareGroupStateResponse": {
            "0 flexible": "results compact_array struct",
        },
        "InitializeStateResult": {
            "0 flexible": "topic_id uuid, partitions compact_array struct",
        },
        "PartitionResult": {
            "0 flexible": "partition int32, error_code int16, error_message compact_string?",
        },
    },
    "ottla.codec.apis.join_group": {
        "JoinGroupRequest": {
            "0": "group_id string, session_timeout_ms int32, member_id string, protocol_type string, protocols array struct",
            "1-4": "group_id string, session_timeout_ms int32, rebalance_timeout_ms int32, member_id string, protocol_type string, protocols array struct",
            "5": "group_id string, session_timeout_ms int32, rebalance_timeout_ms int32, member_id string, group_instance_id string?, protocol_type string, protocols array struct",
            "6-7 flexible": "group_id compact_string, session_timeout_ms int32, rebalance_timeout_ms int32, member_id compact_string, group_instance_id compact_string?, protocol_type compact_string, protocols compact_array struct",
            "8-9 flexible": "group_id compact_string, session_timeout_ms int32, rebalance_timeout_ms int32, member_id compact_string, group_instance_id compact_string?, protocol_type compact_string, protocols compact_array struct, reason compact_string?",
        },
        "JoinGroupRequestProtocol": {
            "0-5": "name string, metadata bytes",
            "6-9 flexible": "name compact_string, metadata compact_bytes",
        },
        "JoinGroupResponse": {
            "0-1": "error_code int16, generation_id int32, protocol_name string, leader string, member_id string, members array struct",
            "2-5": "throttle_time_ms int32, error_code int16, generation_id int32, protocol_name string, leader string, member_id string, members array struct",
            "6 flexible": "throttle_time_ms int32, error_code int16, generation_id int32, protocol_name compact_string, leader compact_string, member_id compact_string, members compact_array struct",
            "7-8 flexible": "throttle_time_ms int32, error_code int16, generation_id int32, protocol_type compact_string?, protocol_name compact_string?, leader compact_string, member_id compact_string, members compact_array struct",
            "9 flexible": "throttle_time_ms int32, error_code int16, generation_id int32, protocol_type compact_string?, protocol_name compact_string?, leader compact_string, skip_assignment bool, member_id compact_string, members compact_array struct",
        },
        "JoinGroupResponseMember": {
            "0-4": "member_id string, metadata bytes",
            "5": "member_id string, group_instance_id string?, metadata bytes",
            "6-9 flexible": "member_id compact_string, group_instance_id compact_string?, metadata compact_bytes",
        },
    },
    "ottla.codec.apis.leave_group": {
        "LeaveGroupRequest": {
            "0-2": "group_id string, member_id string",
            "3": "group_id string, members array struct",
            "4-5 flexible": "group_id compact_string, members compact_array struct",
        },
        "MemberIdentity": {
            "3": "member_id string, group_instance_id string?",
            "4 flexible": "member_id compact_string, group_instance_id compact_string?",
            "5 flexible": "member_id compact_string, group_instance_id compact_string?, reason compact_string?",
        },
        "LeaveGroupResponse": {
            "0": "error_code int16",
            "1-2": "throttle_time_ms int32, error_code int16",
            "3": "throttle_time_ms int32, error_code int16, members array struct",
            "4-5 flexible": "throttle_time_ms int32, error_code int16, members compact_array struct",
        },
        "MemberResponse": {
            "3": "member_id string, group_instance_id string?, error_code int16",
            "4-5 flexible": "member_id compact_string, group_instance_id compact_string?, error_code int16",
        },
    },
    "ottla.codec.apis.list_config_resources": {
        "ListConfigResourcesRequest": {
            "0 flexible": "",
            "1 flexible": "resource_types compact_array int8",
        },
        "ListConfigResourcesResponse": {
            "0-1 flexible": "throttle_time_ms int32, error_code int16, config_resources compact_array struct",
        },
        "ConfigResource": {
            "0 flexible": "resource_name compact_string",
            "1 flexible": "resource_name compact_string, resource_type int8",
        },
    },
    "ottla.codec.apis.list_groups": {
        "ListGroupsRequest": {
            "0-2": "",
            "3 flexible": "",
            "4 flexible": "states_filter compact_array compact_string",
            "5 flexible": "states_filter compact_array compact_string, types_filter compact_array compact_string",
        },
        "ListGroupsResponse": {
            "0": "error_code int16, groups array struct",
            "1-2": "throttle_time_ms int32, error_code int16, groups array struct",
            "3-5 flexible": "throttle_time_ms int32, error_code int16, groups compact_array struct",
        },
        "ListedGroup": {
            "0-2": "group_id string, protocol_type string",
            "3 flexible": "group_id compact_string, protocol_type compact_string",
            "4 flexible": "group_id compact_string, protocol_type compact_string, group_state compact_string",
            "5 flexible": "group_id compact_string, protocol_type compact_string, group_state compact_string, group_type compact_string",
        },
    },
    "ottla.codec.apis.list_offsets": {
        "ListOffsetsRequest": {
            "0-1": "replica_id int32, topics array struct",
            "2-5": "replica_id int32, isolation_level int8, topics array struct",
            "6-9 flexible": "replica_id int32, isolation_level int8, topics compact_array struct",
            "10-11 flexible": "replica_id int32, isolation_level int8, topics compact_array struct, timeout_ms int32",
        },
        "ListOffsetsTopic": {
            "0-5": "name string, partitions array struct",
            "6-11 flexible": "name compact_string, partitions compact_array struct",
        },
        "ListOffsetsPartition": {
            "0": "partition_index int32, timestamp int64, max_num_offsets int32",
            "1-3": "partition_index int32, timestamp int64",
            "4-5": "partition_index int32, current_leader_epoch int32, timestamp int64",
            "6-11 flexible": "partition_index int32, current_leader_epoch int32, timestamp int64",
        },
        "ListOffsetsResponse": {
            "0-1": "topics array struct",
            "2-5": "throttle_time_ms int32, topics array struct",
            "6-11 flexible": "throttle_time_ms int32, topics compact_array struct",
        },
        "ListOffsetsTopicResponse": {
            "0-5": "name string, partitions array struct",
            "6-11 flexible": "name compact_string, partitions compact_array struct",
        },
        "ListOffsetsPartitionResponse": {
            "0": "partition_index int32, error_code int16, old_style_offsets array int64",
            "1-3": "partition_index int32, error_code int16, timestamp int64, offset int64",
            "4-5": "partition_index int32, error_code int16, timestamp int64, offset int64, leader_epoch int32",
            "6-11 flexible": "partition_index int32, error_code int16, timestamp int64, offset int64, leader_epoch int32",
        },
    },
    "ottla.codec.apis.list_partition_reassignments": {
        "ListPartitionReassignmentsRequest": {
            "0 flexible": "timeout_ms int32, topics compact_array? struct",
        },
        "ListPartitionReassignmentsTopics": {
            "0 flexible": "name compact_string, partition_indexes compact_array int32",
        },
        "ListPartitionReassignmentsResponse": {
            "0 flexible": "throttle_time_ms int32, error_code int16, error_message compact_string?, topics compact_array struct",
        },
        "OngoingTopicReassignment": {
            "0 flexible": "name compact_string, partitions compact_array struct",
        },
        "OngoingPartitionReassignment": {
            "0 flexible": "partition_index int32, replicas compact_array int32, adding_replicas compact_array int32, removing_replicas compact_array int32",
        },
    },
    "ottla.codec.apis.list_transactions": {
        "ListTransactionsRequest": {
            "0 flexible": "state_filters compact_array compact_string, producer_id_filters compact_array int64",
            "1 flexible": "state_filters compact_array compact_string, producer_id_filters compact_array int64, duration_filter int64",
            "2 flexible": "state_filters compact_array compact_string, producer_id_filters compact_array int64, duration_filter int64, transactional_id_pattern compact_string?",
        },
        "ListTransactionsResponse": {
            "0-2 flexible": "throttle_time_ms int32, error_code int16, unknown_state_filters compact_array compact_string, transaction_states compact_array struct",
        },
        "TransactionState": {
            "0-2 flexible": "transactional_id compact_string, producer_id int64, transaction_state compact_string",
        },
    },
    "ottla.codec.apis.metadata": {
        "MetadataRequest": {
            "0": "topics array struct",
            "1-3": "topics array? struct",
            "4-7": "topics array? struct, allow_auto_topic_creation bool",
            "8": "topics array? struct, allow_auto_topic_creation bool, include_cluster_authorized_operations bool, include_topic_authorized_operations bool",
            "9-10 flexible": "topics compact_array? struct, allow_auto_topic_creation bool, include_cluster_authorized_operations bool, include_topic_authorized_operations bool",
            "11-13 flexible": "topics compact_array? struct, allow_auto_topic_creation bool, include_topic_authorized_operations bool",
        },
        "MetadataRequestTopic": {
            "0-8": "name string",
            "9 flexible": "name compact_string",
            "10-13 flexible": "topic_id uuid, name compact_string?",
        },
        "MetadataResponse": {
            "0": "brokers array struct, topics array struct",
            "1": "brokers array struct, controller_id int32, topics array struct",
            "2": "brokers array struct, cluster_id string?, controller_id int32, topics array struct",
            "3-7": "throttle_time_ms int32, brokers array struct, cluster_id string?, controller_id int32, topics array struct",
            "8": "throttle_time_ms int32, brokers array struct, cluster_id string?, controller_id int32, topics array struct, cluster_authorized_operations int32",
            "9-10 flexible": "throttle_time_ms int32, brokers compact_array struct, cluster_id compact_string?, controller_id int32, topics compact_array struct, cluster_authorized_operations int32",
            "11-12 flexible": "throttle_time_ms int32, brokers compact_array struct, cluster_id compact_string?, controller_id int32, topics compact_array struct",
            "13 flexible": "throttle_time_ms int32, brokers compact_array struct, cluster_id compact_string?, controller_id int32, topics compact_array struct, error_code int16",
        },
        "MetadataResponseBroker": {
            "0": "node_id int32, host string, port int32",
            "1-8": "node_id int32, host string, port int32, rack string?",
            "9-13 flexible": "node_id int32, host compact_string, port int32, rack compact_string?",
        },
        "MetadataResponseTopic": {
            "0": "error_code int16, name string, partitions array struct",
            "1-7": "error_code int16, name string, is_internal bool, partitions array struct",
            "8": "error_code int16, name string, is_internal bool, partitions array struct, topic_authorized_operations int32",
            "9 flexible": "error_code int16, name compact_string, is_internal bool, partitions compact_array struct, topic_authorized_operations int32",
            "10-11 flexible": "error_code int16, name compact_string, topic_id uuid, is_internal bool, partitions compact_array struct, topic_authorized_operations int32",
            "12-13 flexible": "error_code int16, name compact_string?, topic_id uuid, is_internal bool, partitions compact_array struct, topic_authorized_operations int32",
        },
        "MetadataResponsePartition": {
            "0-4": "error_code int16, partition_index int32, leader_id int32, replica_nodes array int32, isr_nodes array int32",
            "5-6": "error_code int16, partition_index int32, leader_id int32, replica_nodes array int32, isr_nodes array int32, offline_replicas array int32",
            "7-8": "error_code int16, partition_index int32, leader_id int32, leader_epoch int32, replica_nodes array int32, isr_nodes array int32, offline_replicas array int32",
            "9-13 flexible": "error_code int16, partition_index int32, leader_id int32, leader_epoch int32, replica_nodes compact_array int32, isr_nodes compact_array int32, offline_replicas compact_array int32",
        },
    },
    "ottla.codec.apis.offset_commit": {
        "OffsetCommitRequest": {
            "0": "group_id string, topics array struct",
            "1": "group_id string, generation_id_or_member_epoch int32, member_id string, topics array struct",
            "5-6": "group_id string, generation_id_or_member_epoch int32, member_id string, topics array struct",
            "2-4": "group_id string, generation_id_or_member_epoch int32, member_id string, retention_time_ms int64, topics array struct",
            "7": "group_id string, generation_id_or_member_epoch int32, member_id string, group_instance_id string?, topics array struct",
            "8-10 flexible": "group_id compact_string, generation_id_or_member_epoch int32, member_id compact_string, group_instance_id compact_string?, topics compact_array struct",
        },
        "OffsetCommitRequestTopic": {
            "0-7": "name string, partitions array struct",
            "8-9 flexible": "name compact_string, partitions compact_array struct",
            "10 flexible": "topic_id uuid, partitions compact_array struct",
        },
        "OffsetCommitRequestPartition": {
            "0": "partition_index int32, committed_offset int64, committed_metadata string?",
            "2-5": "partition_index int32, committed_offset int64, committed_metadata string?",
            "1": "partition_index int32, committed_offset int64, commit_timestamp int64, committed_metadata string?",
            "6-7": "partition_index int32, committed_offset int64, committed_leader_epoch int32, committed_metadata string?",
            "8-10 flexible": "partition_index int32, committed_offset int64, committed_leader_epoch int32, committed_metadata compact_string?",
        },
        "OffsetCommitResponse": {
            "0-2": "topics array struct",
            "3-7": "throttle_time_ms int32, topics array struct",
            "8-10 flexible": "throttle_time_ms int32, topics compact_array struct",
        },
        "OffsetCommitResponseTopic": {
            "0-7": "name string, partitions array struct",
            "8-9 flexible": "name compact_string, partitions compact_array struct",
            "10 flexible": "topic_id uuid, partitions compact_array struct",
        },
        "OffsetCommitResponsePartition": {
            "0-7": "partition_index int32, error_code int16",
            "8-10 flexible": "partition_index int32, error_code int16",
        },
    },
    "ottla.codec.apis.offset_delete": {
        "OffsetDeleteRequest": {
            "0": "group_id string, topics array struct",
        },
        "OffsetDeleteRequestTopic": {
            "0": "name string, partitions array struct",
        },
        "OffsetDeleteRequestPartition": {
            "0": "partition_index int32",
        },
        "OffsetDeleteResponse": {
            "0": "error_code int16, throttle_time_ms int32, topics array struct",
        },
        "OffsetDeleteResponseTopic": {
            "0": "name string, partitions array struct",
        },
        "OffsetDeleteResponsePartition": {
            "0": "partition_index int32, error_code int16",
        },
    },
    "ottla.codec.apis.offset_fetch": {
        "OffsetFetchRequest": {
            "0-1": "group_id string, topics array struct",
            "2-5": "group_id string, topics array? struct",
            "6 flexible": "group_id compact_string, topics compact_array? struct",
            "7 flexible": "group_id compact_string, topics compact_array? struct, require_stable bool",
            "8-10 flexible": "groups compact_array struct, require_stable bool",
        },
        "OffsetFetchRequestTopic": {
            "0-5": "name string, partition_indexes array int32",
            "6-7 flexible": "name compact_string, partition_indexes compact_array int32",
        },
        "OffsetFetchRequestGroup": {
            "8 flexible": "group_id compact_string, topics compact_array? struct",
            "9-10 flexible": "group_id compact_string, member_id compact_string?, member_epoch int32, topics compact_array? struct",
        },
        "OffsetFetchRequestTopics": {
            "8-9 flexible": "name compact_string, partition_indexes compact_array int32",
            "10 flexible": "topic_id uuid, partition_indexes compact_array int32",
        },
        "OffsetFetchResponse": {
            "0-1": "topics array struct",
            "2": "topics array struct, error_code int16",
            "3-5": "throttle_time_ms int32, topics array struct, error_code int16",
            "6-7 flexible": "throttle_time_ms int32, topics compact_array struct, error_code int16",
            "8-10 flexible": "throttle_time_ms int32, groups compact_array struct",
        },
        "OffsetFetchResponseTopic": {
            "0-5": "name string, partitions array struct",
            "6-7 flexible": "name compact_string, partitions compact_array struct",
        },
        "OffsetFetchResponsePartition": {
            "0-4": "partition_index int32, committed_offset int64, metadata string?, error_code int16",
            "5": "partition_index int32, committed_offset int64, committed_leader_epoch int32, metadata string?, error_code int16",
            "6-7 flexible": "partition_index int32, committed_offset int64, committed_leader_epoch int32, metadata compact_string?, error_code int16",
        },
        "OffsetFetchResponseGroup": {
            "8-10 flexible": "group_id compact_string, topics compact_array struct, error_code int16",
        },
        "OffsetFetchResponseTopics": {
            "8-9 flexible": "name compact_string, partitions compact_array struct",
            "10 flexible": "topic_id uuid, partitions compact_array struct",
        },
        "OffsetFetchResponsePartitions": {
            "8-10 flexible": "partition_index int32, committed_offset int64, committed_leader_epoch int32, metadata compact_string?, error_code int16",
        },
    },
    "ottla.codec.apis.offset_for_leader_epoch": {
        "OffsetForLeaderEpochRequest": {
            "0-2": "topics array struct",
            "3": "replica_id int32, topics array struct",
            "4 flexible": "replica_id int32, topics compact_array struct",
        },
        "OffsetForLeaderTopic": {
            "0-3": "topic string, partitions array struct",
            "4 flexible": "topic compact_string, partitions compact_array struct",
        },
        "OffsetForLeaderPartition": {
            "0-1": "partition int32, leader_epoch int32",
            "2-3": "partition int32, current_leader_epoch int32, leader_epoch int32",
            "4 flexible": "partition int32, current_leader_epoch int32, leader_epoch int32",
        },
        "OffsetForLeaderEpochResponse": {
            "0-1": "topics array struct",
            "2-3": "throttle_time_ms int32, topics array struct",
            "4 flexible": "throttle_time_ms int32, topics compact_array struct",
        },
        "OffsetForLeaderTopicResult": {
            "0-3": "topic string, partitions array struct",
            "4 flexible": "topic compact_string, partitions compact_array struct",
        },
        "EpochEndOffset": {
            "0": "error_code int16, partition int32, end_offset int64",
            "1-3": "error_code int16, partition int32, leader_epoch int32, end_offset int64",
            "4 flexible": "error_code int16, partition int32, leader_epoch int32, end_offset int64",
        },
    },
    "ottla.codec.apis.produce": {
        "ProduceRequest": {
            "0-2": "acks int16, timeout_ms int32, topic_data array struct",
            "3-8": "transactional_id string?, acks int16, timeout_ms int32, topic_data array struct",
            "9-13 flexible": "transactional_id compact_string?, acks int16, timeout_ms int32, topic_data compact_array struct",
        },
        "TopicProduceData": {
            "0-8": "name string, partition_data array struct",
            "9-12 flexible": "name compact_string, partition_data compact_array struct",
            "13 flexible": "topic_id uuid, partition_data compact_array struct",
        },
        "PartitionProduceData": {
            "0-8": "index int32, records window?",
            "9-13 flexible": "index int32, records compact_window?",
        },
        "ProduceResponse": {
            "0": "responses array struct",
            "1-8": "responses array struct, throttle_time_ms int32",
            "9 flexible": "responses compact_array struct, throttle_time_ms int32",
            "10-13 flexible": "responses compact_array struct, throttle_time_ms int32, node_endpoints compact_array struct",
        },
        "TopicProduceResponse": {
            "0-8": "name string, partition_responses array struct",
            "9-12 flexible": "name compact_string, partition_responses compact_array struct",
            "13 flexible": "topic_id uuid, partition_responses compact_array struct",
        },
        "PartitionProduceResponse": {
            "0-1": "index int32, error_code int16, base_offset int64",
            "2-4": "index int32, error_code int16, base_offset int64, log_append_time_ms int64",
            "5-7": "index int32, error_code int16, base_offset int64, log_append_time_ms int64, log_start_offset int64",
            "8": "index int32, error_code int16, base_offset int64, log_append_time_ms int64, log_start_offset int64, record_errors array struct, error_message string?",
            "9 flexible": "index int32, error_code int16, base_offset int64, log_append_time_ms int64, log_start_offset int64, record_errors compact_array struct, error_message compact_string?",
            "10-13 flexible": "index int32, error_code int16, base_offset int64, log_append_time_ms int64, log_start_offset int64, record_errors compact_array struct, error_message compact_string?, current_leader struct",
        },
        "BatchIndexAndErrorMessage": {
            "8": "batch_index int32, batch_index_error_message string?",
            "9-13 flexible": "batch_index int32, batch_index_error_message compact_string?",
        },
        "LeaderIdAndEpoch": {
            "10-13 flexible": "leader_id int32, leader_epoch int32",
        },
        "NodeEndpoint": {
            "10-13 flexible": "node_id int32, host compact_string, port int32, rack compact_string?",
        },
    },
    "ottla.codec.apis.push_telemetry": {
        "PushTelemetryRequest": {
            "0 flexible": "client_instance_id uuid, subscription_id int32, terminating bool, compression_type int8, metrics compact_bytes",
        },
        "PushTelemetryResponse": {
            "0 flexible": "throttle_time_ms int32, error_code int16",
        },
    },
    "ottla.codec.apis.read_share_group_state": {
        "ReadShareGroupStateRequest": {
            "0 flexible": "group_id compact_string, topics compact_array struct",
        },
        "ReadStateData": {
            "0 flexible": "topic_id uuid, partitions compact_array struct",
        },
        "PartitionData": {
            "0 flexible": "partition int32, leader_epoch int32",
        },
        "ReadShareGroupStateResponse": {
            "0 flexible": "results compact_array struct",
        },
        "ReadStateResult": {
            "0 flexible": "topic_id uuid, partitions compact_array struct",
        },
        "PartitionResult": {
            "0 flexible": "partition int32, error_code int16, error_message compact_string?, state_epoch int32, start_offset int64, state_batches compact_array struct",
        },
        "StateBatch": {
            "0 flexible": "first_offset int64, last_offset int64, delivery_state int8, delivery_count int16",
        },
    },
    "ottla.codec.apis.read_share_group_state_summary": {
        "ReadShareGroupStateSummaryRequest": {
            "0-1 flexible": "group_id compact_string, topics compact_array struct",
        },
        "ReadStateSummaryData": {
            "0-1 flexible": "topic_id uuid, partitions compact_array struct",
        },
        "PartitionData": {
            "0-1 flexible": "partition int32, leader_epoch int32",
        },
        "ReadShareGroupStateSummaryResponse": {
            "0-1 flexible": "results compact_array struct",
        },
        "ReadStateSummaryResult": {
            "0-1 flexible": "topic_id uuid, partitions compact_array struct",
        },
        "PartitionResult": {
            "0 flexible": "partition int32, error_code int16, error_message compact_string?, state_epoch int32, leader_epoch int32, start_offset int64",
            "1 flexible": "partition int32, error_code int16, error_message compact_string?, state_epoch int32, leader_epoch int32, start_offset int64, delivery_complete_count int32",
        },
    },
    "ottla.codec.apis.remove_raft_voter": {
        "RemoveRaftVoterRequest": {
            "0 flexible": "cluster_id compact_string?, voter_id int32, voter_directory_id uuid",
        },
        "RemoveRaftVoterResponse": {
            "0 flexible": "throttle_time_ms int32, error_code int16, error_message compact_string?",
        },
    },
    "ottla.codec.apis.renew_delegation_token": {
        "RenewDelegationTokenRequest": {
            "0-1": "hmac bytes, renew_period_ms int64",
            "2 flexible": "hmac compact_bytes, renew_period_ms int64",
        },
        "RenewDelegationTokenResponse": {
            "0-1": "error_code int16, expiry_timestamp_ms int64, throttle_time_ms int32",
            "2 flexible": "error_code int16, expiry_timestamp_ms int64, throttle_time_ms int32",
        },
    },
    "ottla.codec.apis.sasl_authenticate": {
        "SaslAuthenticateRequest": {
            "0-1": "auth_bytes bytes",
            "2 flexible": "auth_bytes compact_bytes",
        },
        "SaslAuthenticateResponse": {
            "0": "error_code int16, error_message string?, auth_bytes bytes",
            "1": "error_code int16, error_message string?, auth_bytes bytes, session_lifetime_ms int64",
            "2 flexible": "error_code int16, error_message compact_string?, auth_bytes compact_bytes, session_lifetime_ms int64",
        },
    },
    "ottla.codec.apis.sasl_handshake": {
        "SaslHandshakeRequest": {
            "0-1": "mechanism string",
        },
        "SaslHandshakeResponse": {
            "0-1": "error_code int16, mechanisms array string",
        },
    },
    "ottla.codec.apis.share_acknowledge": {
        "ShareAcknowledgeRequest": {
            "1 flexible": "group_id compact_string?, member_id compact_string?, share_session_epoch int32, topics compact_array struct",
            "2 flexible": "group_id compact_string?, member_id compact_string?, share_session_epoch int32, is_renew_ack bool, topics compact_array struct",
        },
        "AcknowledgeTopic": {
            "1-2 flexible": "topic_id uuid, partitions compact_array struct",
        },
        "AcknowledgePartition": {
            "1-2 flexible": "partition_index int32, acknowledgement_batches compact_array struct",
        },
        "AcknowledgementBatch": {
            "1-2 flexible": "first_offset int64, last_offset int64, acknowledge_types compact_array int8",
        },
        "ShareAcknowledgeResponse": {
            "1 flexible": "throttle_time_ms int32, error_code int16, error_message compact_string?, responses compact_array struct, node_endpoints compact_array struct",
            "2 flexible": "throttle_time_ms int32, error_code int16, error_message compact_string?, acquisition_lock_timeout_ms int32, responses compact_array struct, node_endpoints compact_array struct",
        },
        "ShareAcknowledgeTopicResponse": {
            "1-2 flexible": "topic_id uuid, partitions compact_array struct",
        },
        "PartitionData": {
            "1-2 flexible": "partition_index int32, error_code int16, error_message compact_string?, current_leader struct",
        },
        "LeaderIdAndEpoch": {
            "1-2 flexible": "leader_id int32, leader_epoch int32",
        },
        "NodeEndpoint": {
            "1-2 flexible": "node_id int32, host compact_string, port int32, rack compact_string?",
        },
    },
    "ottla.codec.apis.share_fetch": {
        "ShareFetchRequest": {
            "1 flexible": "group_id compact_string?, member_id compact_string?, share_session_epoch int32, max_wait_ms int32, min_bytes int32, max_bytes int32, max_records int32, batch_size int32, topics compact_array struct, forgotten_topics_data compact_array struct",
            "2 flexible": "group_id compact_string?, member_id compact_string?, share_session_epoch int32, max_wait_ms int32, min_bytes int32, max_bytes int32, max_records int32, batch_size int32, share_acquire_mode int8, is_renew_ack bool, topics compact_array struct, forgotten_topics_data compact_array struct",
        },
        "FetchTopic": {
            "1-2 flexible": "topic_id uuid, partitions compact_array struct",
        },
        "FetchPartition": {
            "1-2 flexible": "partition_index int32, acknowledgement_batches compact_array struct",
        },
        "AcknowledgementBatch": {
            "1-2 flexible": "first_offset int64, last_offset int64, acknowledge_types compact_array int8",
        },
        "ForgottenTopic": {
            "1-2 flexible": "topic_id uuid, partitions compact_array int32",
        },
        "ShareFetchResponse": {
            "1-2 flexible": "throttle_time_ms int32, error_code int16, error_message compact_string?, acquisition_lock_timeout_ms int32, responses compact_array struct, node_endpoints compact_array struct",
        },
        "ShareFetchableTopicResponse": {
            "1-2 flexible": "topic_id uuid, partitions compact_array struct",
        },
        "PartitionData": {
            "1-2 flexible": "partition_index int32, error_code int16, error_message compact_string?, acknowledge_error_code int16, acknowledge_error_message compact_string?, current_leader struct, records compact_window, acquired_records compact_array struct",
        },
        "LeaderIdAndEpoch": {
            "1-2 flexible": "leader_id int32, leader_epoch int32",
        },
        "AcquiredRecords": {
            "1-2 flexible": "first_offset int64, last_offset int64, delivery_count int16",
        },
        "NodeEndpoint": {
            "1-2 flexible": "node_id int32, host compact_string, port int32, rack compact_string?",
        },
    },
    "ottla.codec.apis.share_group_describe": {
        "ShareGroupDescribeRequest": {
            "1 flexible": "group_ids compact_array compact_string, include_authorized_operations bool",
        },
        "ShareGroupDescribeResponse": {
            "1 flexible": "throttle_time_ms int32, groups compact_array struct",
        },
        "DescribedGroup": {
            "1 flexible": "error_code int16, error_message compact_string?, group_id compact_string, group_state compact_string, group_epoch int32, assignment_epoch int32, assignor_name compact_string, members compact_array struct, authorized_operations int32",
        },
        "Member": {
            "1 flexible": "member_id compact_string, rack_id compact_string?, member_epoch int32, client_id compact_string, client_host compact_string, subscribed_topic_names compact_array compact_string, assignment struct",
        },
        "Assignment": {
            "1 flexible": "topic_partitions compact_array struct",
        },
        "TopicPartitions": {
            "1 flexible": "topic_id uuid, topic_name compact_string, partitions compact_array int32",
        },
    },
    "ottla.codec.apis.share_group_heartbeat": {
        "ShareGroupHeartbeatRequest": {
            "1 flexible": "group_id compact_string, member_id compact_string, member_epoch int32, rack_id compact_string?, subscribed_topic_names compact_array? compact_string",
        },
        "ShareGroupHeartbeatResponse": {
            "1 flexible": "throttle_time_ms int32, error_code int16, error_message compact_string?, member_id compact_string?, member_epoch int32, heartbeat_interval_ms int32, assignment struct?",
        },
        "Assignment": {
            "1 flexible": "topic_partitions compact_array struct",
        },
        "TopicPartitions": {
            "1 flexible": "topic_id uuid, partitions compact_array int32",
        },
    },
    "ottla.codec.apis.streams_group_describe": {
        "StreamsGroupDescribeRequest": {
            "0 flexible": "group_ids compact_array compact_string, include_authorized_operations bool",
            "1 flexible": "group_ids compact_array compact_string, include_authorized_operations bool, include_topology_description bool",
        },
        "StreamsGroupDescribeResponse": {
            "0-1 flexible": "throttle_time_ms int32, groups compact_array struct",
        },
        "DescribedGroup": {
            "0 flexible": "error_code int16, error_message compact_string?, group_id compact_string, group_state compact_string, group_epoch int32, assignment_epoch int32, topology struct?, members compact_array struct, authorized_operations int32",
            "1 flexible": "error_code int16, error_message compact_string?, group_id compact_string, group_state compact_string, group_epoch int32, assignment_epoch int32, topology struct?, members compact_array struct, authorized_operations int32, topology_description struct?, topology_description_status int8, assignor_name compact_string?",
        },
        "Topology": {
            "0-1 flexible": "epoch int32, subtopologies compact_array? struct",
        },
        "Subtopology": {
            "0-1 flexible": "subtopology_id compact_string, source_topics compact_array compact_string, repartition_sink_topics compact_array compact_string, state_changelog_topics compact_array struct, repartition_source_topics compact_array struct",
        },
        "TopicInfo": {
            "0-1 flexible": "name compact_string, partitions int32, replication_factor int16, topic_configs compact_array struct",
        },
        "KeyValue": {
            "0-1 flexible": "key compact_string, value compact_string",
        },
        "Member": {
            "0-1 flexible": "member_id compact_string, member_epoch int32, instance_id compact_string?, rack_id compact_string?, client_id compact_string, client_host compact_string, topology_epoch int32, process_id compact_string, user_endpoint struct?, client_tags compact_array struct, task_offsets compact_array struct, task_end_offsets compact_array struct, assignment struct, target_assignment struct, is_classic bool",
        },
        "Endpoint": {
            "0-1 flexible": "host compact_string, port uint16",
        },
        "TaskOffset": {
            "0-1 flexible": "subtopology_id compact_string, partition int32, offset int64",
        },
        "Assignment": {
            "0-1 flexible": "active_tasks compact_array struct, standby_tasks compact_array struct, warmup_tasks compact_array struct",
        },
        "TaskIds": {
            "0-1 flexible": "subtopology_id compact_string, partitions compact_array int32",
        },
        "TopologyDescription": {
            "1 flexible": "subtopologies compact_array struct, global_stores compact_array struct",
        },
        "TopologyDescriptionSubtopology": {
            "1 flexible": "subtopology_id compact_string, nodes compact_array struct",
        },
        "TopologyDescriptionNode": {
            "1 flexible": "name compact_string, node_type int8, source_topics compact_array compact_string, sink_topic compact_string?, stores compact_array compact_string, successors compact_array compact_string",
        },
        "TopologyDescriptionGlobalStore": {
            "1 flexible": "source struct, processor struct",
        },
    },
    "ottla.codec.apis.streams_group_heartbeat": {
        "StreamsGroupHeartbeatRequest": {
            "0-1 flexible": "group_id compact_string, member_id compact_string, member_epoch int32, endpoint_information_epoch int32, instance_id compact_string?, rack_id compact_string?, rebalance_timeout_ms int32, topology struct?, active_tasks compact_array? struct, standby_tasks compact_array? struct, warmup_tasks compact_array? struct, process_id compact_string?, user_endpoint struct?, client_tags compact_array? struct, task_offsets compact_array? struct, task_end_offsets compact_array? struct, shutdown_application bool",
        },
        "Topology": {
            "0-1 flexible": "epoch int32, subtopologies compact_array struct",
        },
        "Subtopology": {
            "0-1 flexible": "subtopology_id compact_string, source_topics compact_array compact_string, source_topic_regex compact_array compact_string, state_changelog_topics compact_array struct, repartition_sink_topics compact_array compact_string, repartition_source_topics compact_array struct, copartition_groups compact_array struct",
        },
        "TopicInfo": {
            "0-1 flexible": "name compact_string, partitions int32, replication_factor int16, topic_configs compact_array struct",
        },
        "KeyValue": {
            "0-1 flexible": "key compact_string, value compact_string",
        },
        "CopartitionGroup": {
            "0-1 flexible": "source_topics compact_array int16, source_topic_regex compact_array int16, repartition_source_topics compact_array int16",
        },
        "TaskIds": {
            "0-1 flexible": "subtopology_id compact_string, partitions compact_array int32",
        },
        "Endpoint": {
            "0-1 flexible": "host compact_string, port uint16",
        },
        "TaskOffset": {
            "0-1 flexible": "subtopology_id compact_string, partition int32, offset int64",
        },
        "StreamsGroupHeartbeatResponse": {
            "0 flexible": "throttle_time_ms int32, error_code int16, error_message compact_string?, member_id compact_string, member_epoch int32, heartbeat_interval_ms int32, acceptable_recovery_lag_legacy int32, task_offset_interval_ms int32, status compact_array? struct, active_tasks compact_array? struct, standby_tasks compact_array? struct, warmup_tasks compact_array? struct, endpoint_information_epoch int32, partitions_by_user_endpoint compact_array? struct",
            "1 flexible": "throttle_time_ms int32, error_code int16, error_message compact_string?, member_id compact_string, member_epoch int32, heartbeat_interval_ms int32, task_offset_interval_ms int32, acceptable_recovery_lag int64, status compact_array? struct, active_tasks compact_array? struct, standby_tasks compact_array? struct, warmup_tasks compact_array? struct, topology_description_required bool, endpoint_information_epoch int32, partitions_by_user_endpoint compact_array? struct",
        },
        "Status": {
            "0-1 flexible": "status_code int8, status_detail compact_string",
        },
        "EndpointToPartitions": {
            "0-1 flexible": "user_endpoint struct, active_partitions compact_array struct, standby_partitions compact_array struct",
        },
        "TopicPartition": {
            "0-1 flexible": "topic compact_string, partitions compact_array int32",
        },
    },
    "ottla.codec.apis.streams_group_topology_description_update": {
        "StreamsGroupTopologyDescriptionUpdateRequest": {
            "0 flexible": "group_id compact_string, member_id compact_string, topology_epoch int32, topology_description struct",
        },
        "TopologyDescription": {
            "0 flexible": "subtopologies compact_array struct, global_stores compact_array struct",
        },
        "TopologyDescriptionSubtopology": {
            "0 flexible": "subtopology_id compact_string, nodes compact_array struct",
        },
        "TopologyDescriptionNode": {
            "0 flexible": "name compact_string, node_type int8, source_topics compact_array compact_string, sink_topic compact_string?, stores compact_array compact_string, successors compact_array compact_string",
        },
        "TopologyDescriptionGlobalStore": {
            "0 flexible": "source struct, processor struct",
        },
        "StreamsGroupTopologyDescriptionUpdateResponse": {
            "0 flexible": "throttle_time_ms int32, error_code int16, error_message compact_string?",
        },
    },
    "ottla.codec.apis.sync_group": {
        "SyncGroupRequest": {
            "0-2": "group_id string, generation_id int32, member_id string, assignments array struct",
            "3": "group_id string, generation_id int32, member_id string, group_instance_id string?, assignments array struct",
            "4 flexible": "group_id compact_string, generation_id int32, member_id compact_string, group_instance_id compact_string?, assignments compact_array struct",
            "5 flexible": "group_id compact_string, generation_id int32, member_id compact_string, group_instance_id compact_string?, protocol_type compact_string?, protocol_name compact_string?, assignments compact_array struct",
        },
        "SyncGroupRequestAssignment": {
            "0-3": "member_id string, assignment bytes",
            "4-5 flexible": "member_id compact_string, assignment compact_bytes",
        },
        "SyncGroupResponse": {
            "0": "error_code int16, assignment bytes",
            "1-3": "throttle_time_ms int32, error_code int16, assignment bytes",
            "4 flexible": "throttle_time_ms int32, error_code int16, assignment compact_bytes",
            "5 flexible": "throttle_time_ms int32, error_code int16, protocol_type compact_string?, protocol_name compact_string?, assignment compact_bytes",
        },
    },
    "ottla.codec.apis.txn_offset_commit": {
        "TxnOffsetCommitRequest": {
            "0-2": "transactional_id string, group_id string, producer_id int64, producer_epoch int16, topics array struct",
            "3-6 flexible": "transactional_id compact_string, group_id compact_string, producer_id int64, producer_epoch int16, generation_id_or_member_epoch int32, member_id compact_string, group_instance_id compact_string?, topics compact_array struct",
        },
        "TxnOffsetCommitRequestTopic": {
            "0-2": "name string, partitions array struct",
            "3-5 flexible": "name compact_string, partitions compact_array struct",
            "6 flexible": "topic_id uuid, partitions compact_array struct",
        },
        "TxnOffsetCommitRequestPartition": {
            "0-1": "partition_index int32, committed_offset int64, committed_metadata string?",
            "2": "partition_index int32, committed_offset int64, committed_leader_epoch int32, committed_metadata string?",
            "3-6 flexible": "partition_index int32, committed_offset int64, committed_leader_epoch int32, committed_metadata compact_string?",
        },
        "TxnOffsetCommitResponse": {
            "0-2": "throttle_time_ms int32, topics array struct",
            "3-6 flexible": "throttle_time_ms int32, topics compact_array struct",
        },
        "TxnOffsetCommitResponseTopic": {
            "0-2": "name string, partitions array struct",
            "3-5 flexible": "name compact_string, partitions compact_array struct",
            "6 flexible": "topic_id uuid, partitions compact_array struct",
        },
        "TxnOffsetCommitResponsePartition": {
            "0-2": "partition_index int32, error_code int16",
            "3-6 flexible": "partition_index int32, error_code int16",
        },
    },
    "ottla.codec.apis.unregister_broker": {
        "UnregisterBrokerRequest": {
            "0 flexible": "broker_id int32",
        },
        "UnregisterBrokerResponse": {
            "0 flexible": "throttle_time_ms int32, error_code int16, error_message compact_string?",
        },
    },
    "ottla.codec.apis.unregister_controller": {
        "UnregisterControllerRequest": {
            "0 flexible": "controller_id int32",
        },
        "UnregisterControllerResponse": {
            "0 flexible": "throttle_time_ms int32, error_code int16, error_message compact_string?",
        },
    },
    "ottla.codec.apis.update_features": {
        "UpdateFeaturesRequest": {
            "0 flexible": "timeout_ms int32, feature_updates compact_array struct",
            "1-2 flexible": "timeout_ms int32, feature_updates compact_array struct, validate_only bool",
        },
        "FeatureUpdateKey": {
            "0 flexible": "feature compact_string, max_version_level int16, allow_downgrade bool",
            "1-2 flexible": "feature compact_string, max_version_level int16, upgrade_type int8",
        },
        "UpdateFeaturesResponse": {
            "0-1 flexible": "throttle_time_ms int32, error_code int16, error_message compact_string?, results compact_array struct",
            "2 flexible": "throttle_time_ms int32, error_code int16, error_message compact_string?",
        },
        "UpdatableFeatureResult": {
            "0-1 flexible": "feature compact_string, error_code int16, error_message compact_string?",
        },
    },
    "ottla.codec.apis.write_share_group_state": {
        "WriteShareGroupStateRequest": {
            "0-1 flexible": "group_id compact_string, topics compact_array struct",
        },
        "WriteStateData": {
            "0-1 flexible": "topic_id uuid, partitions compact_array struct",
        },
        "PartitionData": {
            "0 flexible": "partition int32, state_epoch int32, leader_epoch int32, start_offset int64, state_batches compact_array struct",
            "1 flexible": "partition int32, state_epoch int32, leader_epoch int32, start_offset int64, delivery_complete_count int32, state_batches compact_array struct",
        },
        "StateBatch": {
            "0-1 flexible": "first_offset int64, last_offset int64, delivery_state int8, delivery_count int16",
        },
        "WriteShareGroupStateResponse": {
            "0-1 flexible": "results compact_array struct",
        },
        "WriteStateResult": {
            "0-1 flexible": "topic_id uuid, partitions compact_array struct",
        },
        "PartitionResult": {
            "0-1 flexible": "partition int32, error_code int16, error_message compact_string?",
        },
    },
    "ottla.codec.apis.write_txn_markers": {
        "WriteTxnMarkersRequest": {
            "0": "markers array struct",
            "1-2 flexible": "markers compact_array struct",
        },
        "WritableTxnMarker": {
            "0": "producer_id int64, producer_epoch int16, transaction_result bool, topics array struct, coordinator_epoch int32",
            "1 flexible": "producer_id int64, producer_epoch int16, transaction_result bool, topics compact_array struct, coordinator_epoch int32",
            "2 flexible": "producer_id int64, producer_epoch int16, transaction_result bool, topics compact_array struct, coordinator_epoch int32, transaction_version int8",
        },
        "WritableTxnMarkerTopic": {
            "0": "name string, partition_indexes array int32",
            "1-2 flexible": "name compact_string, partition_indexes compact_array int32",
        },
        "WriteTxnMarkersResponse": {
            "0": "markers array struct",
            "1-2 flexible": "markers compact_array struct",
        },
        "WritableTxnMarkerResult": {
            "0": "producer_id int64, topics array struct",
            "1-2 flexible": "producer_id int64, topics compact_array struct",
        },
        "WritableTxnMarkerTopicResult": {
            "0": "name string, partitions array struct",
            "1-2 flexible": "name compact_string, partitions compact_array struct",
        },
        "WritableTxnMarkerPartitionResult": {
            "0": "partition_index int32, error_code int16",
            "1-2 flexible": "partition_index int32, error_code int16",
        },
    },
    "ottla.codec.consumer_protocol": {
        "ConsumerProtocolSubscription": {
            "0": "topics array string, user_data bytes?",
            "1": "topics array string, user_data bytes?, owned_partitions array struct",
            "2": "topics array string, user_data bytes?, owned_partitions array struct, generation_id int32",
            "3": "topics array string, user_data bytes?, owned_partitions array struct, generation_id int32, rack_id string?",
        },
        "TopicPartition": {
            "0-3": "topic string, partitions array int32",
        },
        "ConsumerProtocolAssignment": {
            "0-3": "assigned_partitions array struct, user_data bytes?",
        },
        "StickyAssignorUserData": {
            "0": "previous_assignment array struct",
            "1": "previous_assignment array struct, generation int32",
        },
        "CooperativeStickyAssignorUserData": {
            "0": "generation int32",
        },
    },
    "ottla.codec.frames": {
        "RequestHeader": {
            "1": "api_key int16, api_version int16, correlation_id int32, client_id string?",
            "2 flexible": "api_key int16, api_version int16, correlation_id int32, client_id string?",
        },
        "ResponseHeader": {
            "0": "correlation_id int32",
            "1 flexible": "correlation_id int32",
        },
    },
    "ottla.codec.kafka07": {
        "MessageHead": {
            "0": "size int32, magic int8, crc uint32",
            "1": "size int32, magic int8, attributes int8, crc uint32",
        },
        "RequestHeader": {
            "0": "request_type int16",
        },
        "ProduceRequest": {
            "0": "topic string, partition int32, message_set window",
        },
        "FetchRequest": {
            "0": "topic string, partition int32, offset int64, max_size int32",
        },
        "MultiFetchRequest": {
            "0": "fetches short_array struct",
        },
        "MultiProduceRequest": {
            "0": "produces short_array struct",
        },
        "OffsetsRequest": {
            "0": "topic string, partition int32, time int64, max_offsets int32",
        },
        "ResponseHeader": {
            "0": "error_code int16",
        },
        "OffsetsResponse": {
            "0": "error_code int16, offsets array int64",
        },
    },
    "ottla.codec.message_sets": {
        "Message": {
            "0": "offset int64, message_size int32, crc uint32, magic int8, attributes int8, key bytes?, value bytes?",
            "1": "offset int64, message_size int32, crc uint32, magic int8, attributes int8, timestamp int64, key bytes?, value bytes?",
        },
    },
    "ottla.codec.records": {
        "BatchHeader": {
            "2": "base_offset int64, length int32, partition_leader_epoch int32, magic int8, crc uint32, attributes int16, last_offset_delta int32, base_timestamp int64, max_timestamp int64, producer_id int64, producer_epoch int16, base_sequence int32, count int32",
        },
        "RecordLength": {
            "2": "length zigzag32",
        },
        "RecordBody": {
            "2": "attributes int8, timestamp_delta zigzag64, offset_delta zigzag32, key var_bytes?, value var_bytes?, headers var_array struct",
        },
        "RecordHeader": {
            "2": "key var_string, value var_bytes?",
        },
        "_RawRecordBody": {
            "2": "attributes int8, timestamp_delta zigzag64, offset_delta zigzag32, key var_bytes?, value var_bytes?, headers var_array struct",
        },
        "_RawRecordHeader": {
            "2": "key var_bytes, value var_bytes?",
        },
    },
    "ottla.codec.stored.access_control": {
        "AccessControlEntryRecord": {
            "0 flexible": "id uuid, resource_type int8, resource_name compact_string, pattern_type int8, principal compact_string, host compact_string, operation int8, permission_type int8",
        },
    },
    "ottla.codec.stored.classic_groups": {
        "LegacyOffsetCommitKey": {
            "0": "group string, topic string, partition int32",
        },
        "LegacyOffsetCommitValue": {
            "0": "offset int64, metadata string, commit_timestamp int64",
        },
        "OffsetCommitKey": {
            "0": "group string, topic string, partition int32",
        },
        "OffsetCommitValue": {
            "0": "offset int64, metadata string, commit_timestamp int64",
            "2": "offset int64, metadata string, commit_timestamp int64",
            "1": "offset int64, metadata string, commit_timestamp int64, expire_timestamp int64",
            "3": "offset int64, leader_epoch int32, metadata string, commit_timestamp int64",
            "4 flexible": "offset int64, leader_epoch int32, metadata compact_string, commit_timestamp int64, topic_id uuid",
        },
        "GroupMetadataKey": {
            "0": "group string",
        },
        "GroupMetadataValue": {
            "0-1": "protocol_type string, generation int32, protocol string?, leader string?, members array struct",
            "2-3": "protocol_type string, generation int32, protocol string?, leader string?, current_state_timestamp int64, members array struct",
            "4 flexible": "protocol_type compact_string, generation int32, protocol compact_string?, leader compact_string?, current_state_timestamp int64, members compact_array struct",
        },
        "MemberMetadata": {
            "0": "member_id string, client_id string, client_host string, session_timeout int32, subscription bytes, assignment bytes",
            "1-2": "member_id string, client_id string, client_host string, rebalance_timeout int32, session_timeout int32, subscription bytes, assignment bytes",
            "3": "member_id string, group_instance_id string?, client_id string, client_host string, rebalance_timeout int32, session_timeout int32, subscription bytes, assignment bytes",
            "4 flexible": "member_id compact_string, group_instance_id compact_string?, client_id compact_string, client_host compact_string, rebalance_timeout int32, session_timeout int32, subscription compact_bytes, assignment compact_bytes",
        },
    },
    "ottla.codec.stored.consumer_groups": {
        "ConsumerGroupMetadataKey": {
            "0": "group_id string",
        },
        "ConsumerGroupMetadataValue": {
            "0 flexible": "epoch int32, metadata_hash int64",
        },
        "ConsumerGroupPartitionMetadataKey": {
            "0": "group_id string",
        },
        "ConsumerGroupPartitionMetadataValue": {
            "0 flexible": "topics compact_array struct",
        },
        "TopicMetadata": {
            "0 flexible": "topic_id uuid, topic_name compact_string, num_partitions int32, partition_metadata compact_array struct",
        },
        "PartitionMetadata": {
            "0 flexible": "partition int32, racks compact_array compact_string",
        },
        "ConsumerGroupMemberMetadataKey": {
            "0": "group_id string, member_id string",
        },
        "ConsumerGroupMemberMetadataValue": {
            "0 flexible": "instance_id compact_string?, rack_id compact_string?, client_id compact_string, client_host compact_string, subscribed_topic_names compact_array compact_string, subscribed_topic_regex compact_string?, rebalance_timeout_ms int32, server_assignor compact_string?, classic_member_metadata compact_struct?",
        },
        "ClassicMemberMetadata": {
            "0 flexible": "session_timeout_ms int32, supported_protocols compact_array struct",
        },
        "ClassicProtocol": {
            "0 flexible": "name compact_string, metadata compact_bytes",
        },
        "ConsumerGroupTargetAssignmentMetadataKey": {
            "0": "group_id string",
        },
        "ConsumerGroupTargetAssignmentMetadataValue": {
            "0 flexible": "assignment_epoch int32, assignment_timestamp int64",
        },
        "ConsumerGroupTargetAssignmentMemberKey": {
            "0": "group_id string, member_id string",
        },
        "ConsumerGroupTargetAssignmentMemberValue": {
            "0 flexible": "topic_partitions compact_array struct",
        },
        "TopicPartitions": {
            "0 flexible": "topic_id uuid, partitions compact_array int32",
        },
        "ConsumerGroupCurrentMemberAssignmentKey": {
            "0": "group_id string, member_id string",
        },
        "ConsumerGroupCurrentMemberAssignmentValue": {
            "0 flexible": "member_epoch int32, previous_member_epoch int32, state int8, assigned_partitions compact_array struct, partitions_pending_revocation compact_array struct",
        },
        "AssignedTopicPartitions": {
            "0 flexible": "topic_id uuid, partitions compact_array int32, assignment_epochs compact_array? int32",
        },
        "ConsumerGroupRegularExpressionKey": {
            "0": "group_id string, regular_expression string",
        },
        "ConsumerGroupRegularExpressionValue": {
            "0 flexible": "topics compact_array compact_string, version int64, timestamp int64",
        },
    },
    "ottla.codec.stored.control": {
        "ControlRecordKey": {
            "0": "type int16",
        },
        "EndTxnMarker": {
            "0": "coordinator_epoch int32",
        },
        "LeaderChangeMessage": {
            "0-1 flexible": "version int16, leader_id int32, voters compact_array struct, granting_voters compact_array struct",
        },
        "ElectionVoter": {
            "0 flexible": "voter_id int32",
            "1 flexible": "voter_id int32, voter_directory_id uuid",
        },
        "SnapshotHeaderRecord": {
            "0 flexible": "version int16, last_contained_log_timestamp int64",
        },
        "SnapshotFooterRecord": {
            "0 flexible": "version int16",
        },
        "KRaftVersionRecord": {
            "0 flexible": "version int16, kraft_version int16",
        },
        "VotersRecord": {
            "0 flexible": "version int16, voters compact_array struct",
        },
        "Voter": {
            "0 flexible": "voter_id int32, voter_directory_id uuid, endpoints compact_array struct, kraft_version_feature struct",
        },
        "Endpoint": {
            "0 flexible": "name compact_string, host compact_string, port uint16",
        },
        "KRaftVersionFeature": {
            "0 flexible": "min_supported_version int16, max_supported_version int16",
        },
    },
    "ottla.codec.stored.indexes": {
        "OffsetIndexEntry": {
            "0": "relative_offset int32, position int32",
        },
        "TimeIndexEntry": {
            "0": "timestamp int64, relative_offset int32",
        },
        "AbortedTxn": {
            "0": "producer_id int64, first_offset int64, last_offset int64, last_stable_offset int64",
        },
    },
    "ottla.codec.stored.share_group_state": {
        "ShareSnapshotKey": {
            "0": "group_id string, topic_id uuid, partition int32",
        },
        "ShareSnapshotValue": {
            "0 flexible": "snapshot_epoch int32, state_epoch int32, leader_epoch int32, start_offset int64, create_timestamp int64, write_timestamp int64, state_batches compact_array struct, delivery_complete_count int32",
        },
        "StateBatch": {
            "0 flexible": "first_offset int64, last_offset int64, delivery_state int8, delivery_count int16",
        },
        "ShareUpdateKey": {
            "0": "group_id string, topic_id uuid, partition int32",
        },
        "ShareUpdateValue": {
            "0 flexible": "snapshot_epoch int32, leader_epoch int32, start_offset int64, state_batches compact_array struct, delivery_complete_count int32",
        },
    },
    "ottla.codec.stored.share_groups": {
        "ShareGroupMemberMetadataKey": {
            "0": "group_id string, member_id string",
        },
        "ShareGroupMemberMetadataValue": {
            "0 flexible": "rack_id compact_string?, client_id compact_string, client_host compact_string, subscribed_topic_names compact_array compact_string",
        },
        "ShareGroupMetadataKey": {
            "0": "group_id string",
        },
        "ShareGroupMetadataValue": {
            "0 flexible": "epoch int32, metadata_hash int64",
        },
        "ShareGroupTargetAssignmentMetadataKey": {
            "0": "group_id string",
        },
        "ShareGroupTargetAssignmentMetadataValue": {
            "0 flexible": "assignment_epoch int32, assignment_timestamp int64",
        },
        "ShareGroupTargetAssignmentMemberKey": {
            "0": "group_id string, member_id string",
        },
        "ShareGroupTargetAssignmentMemberValue": {
            "0 flexible": "topic_partitions compact_array struct",
        },
        "ShareGroupCurrentMemberAssignmentKey": {
            "0": "group_id string, member_id string",
        },
        "ShareGroupCurrentMemberAssignmentValue": {
            "0 flexible": "member_epoch int32, previous_member_epoch int32, state int8, assigned_partitions compact_array struct",
        },
        "ShareGroupStatePartitionMetadataKey": {
            "0": "group_id string",
        },
        "ShareGroupStatePartitionMetadataValue": {
            "0 flexible": "initializing_topics compact_array struct, initialized_topics compact_array struct, deleting_topics compact_array struct",
        },
        "TopicPartitionsInfo": {
            "0 flexible": "topic_id uuid, topic_name compact_string, partitions compact_array int32",
        },
        "TopicInfo": {
            "0 flexible": "topic_id uuid, topic_name compact_string",
        },
    },
    "ottla.codec.stored.snapshots": {
        "ProducerSnapshot": {
            "1": "crc uint32, producer_entries array struct",
        },
        "ProducerEntry": {
            "1": "producer_id int64, epoch int16, last_sequence int32, last_offset int64, offset_delta int32, timestamp int64, coordinator_epoch int32, current_txn_first_offset int64",
        },
    },
    "ottla.codec.stored.streams_groups": {
        "StreamsGroupMetadataKey": {
            "0": "group_id string",
        },
        "StreamsGroupMetadataValue": {
            "0 flexible": "epoch int32, metadata_hash int64, validated_topology_epoch int32, last_assignment_configs compact_array? struct",
        },
        "LastAssignmentConfig": {
            "0 flexible": "key compact_string, value compact_string",
        },
        "StreamsGroupMemberMetadataKey": {
            "0": "group_id string, member_id string",
        },
        "StreamsGroupMemberMetadataValue": {
            "0 flexible": "instance_id compact_string?, rack_id compact_string?, client_id compact_string, client_host compact_string, rebalance_timeout_ms int32, topology_epoch int32, process_id compact_string, user_endpoint struct?, client_tags compact_array struct",
        },
        "Endpoint": {
            "0 flexible": "host compact_string, port uint16",
        },
        "KeyValue": {
            "0 flexible": "key compact_string, value compact_string",
        },
        "StreamsGroupTargetAssignmentMetadataKey": {
            "0": "group_id string",
        },
        "StreamsGroupTargetAssignmentMetadataValue": {
            "0 flexible": "assignment_epoch int32, assignment_timestamp int64",
        },
        "StreamsGroupTargetAssignmentMemberKey": {
            "0": "group_id string, member_id string",
        },
        "StreamsGroupTargetAssignmentMemberValue": {
            "0 flexible": "active_tasks compact_array struct, standby_tasks compact_array struct, warmup_tasks compact_array struct",
        },
        "TaskIds": {
            "0 flexible": "subtopology_id compact_string, partitions compact_array int32",
        },
        "StreamsGroupCurrentMemberAssignmentKey": {
            "0": "group_id string, member_id string",
        },
        "StreamsGroupCurrentMemberAssignmentValue": {
            "0 flexible": "member_epoch int32, previous_member_epoch int32, state int8, active_tasks compact_array struct, standby_tasks compact_array struct, warmup_tasks compact_array struct, active_tasks_pending_revocation compact_array struct, standby_tasks_pending_revocation compact_array struct, warmup_tasks_pending_revocation compact_array struct",
        },
        "AssignedTaskIds": {
            "0 flexible": "subtopology_id compact_string, partitions compact_array int32, assignment_epochs compact_array? int32",
        },
        "StreamsGroupTopologyKey": {
            "0": "group_id string",
        },
        "StreamsGroupTopologyValue": {
            "0 flexible": "epoch int32, subtopologies compact_array struct",
        },
        "Subtopology": {
            "0 flexible": "subtopology_id compact_string, source_topics compact_array compact_string, source_topic_regex compact_array compact_string, state_changelog_topics compact_array struct, repartition_sink_topics compact_array compact_string, repartition_source_topics compact_array struct, copartition_groups compact_array struct",
        },
        "TopicInfo": {
            "0 flexible": "name compact_string, partitions int32, replication_factor int16, topic_configs compact_array struct",
        },
        "TopicConfig": {
            "0 flexible": "key compact_string, value compact_string",
        },
        "CopartitionGroup": {
            "0 flexible": "source_topics compact_array int16, source_topic_regex compact_array int16, repartition_source_topics compact_array int16",
        },
    },
    "ottla.codec.stored.transaction_state": {
        "TransactionLogKey": {
            "0": "transactional_id string",
        },
        "TransactionLogValue": {
            "0": "producer_id int64, producer_epoch int16, transaction_timeout_ms int32, transaction_status int8, transaction_partitions array? struct, transaction_last_update_timestamp_ms int64, transaction_start_timestamp_ms int64",
            "1 flexible": "producer_id int64, producer_epoch int16, transaction_timeout_ms int32, transaction_status int8, transaction_partitions compact_array? struct, transaction_last_update_timestamp_ms int64, transaction_start_timestamp_ms int64, previous_producer_id int64, next_producer_id int64, client_transaction_version int16, next_producer_epoch int16",
        },
        "PartitionsSchema": {
            "0": "topic string, partition_ids array int32",
            "1 flexible": "topic compact_string, partition_ids compact_array int32",
        },
    },
    "ottla.codec.stored.user_credentials": {
        "UserScramCredentialKey": {
            "0 flexible": "name compact_string, mechanism int8",
        },
        "UserScramCredentialValue": {
            "0 flexible": "name compact_string, mechanism int8, salt compact_bytes, stored_key compact_bytes, server_key compact_bytes, iterations int32",
        },
    },
}
"""Module -> class -> versions -> fields, each with its op."""
