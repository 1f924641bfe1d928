-- Named statements, one text for both databases. `:name` is a value, {lock} a row lock.

-- name: migration_version
SELECT MAX(version) FROM migrations

-- name: add_migration
INSERT INTO migrations (version, name, applied_at) VALUES (:version, :name, :applied_at)

-- name: add_instance
INSERT INTO instance (one, cursor_key, probed_at) VALUES (1, :cursor_key, 0)
ON CONFLICT (one) DO NOTHING

-- name: get_instance
SELECT cursor_key FROM instance WHERE one = 1

-- name: get_seal_check
SELECT seal_check FROM instance WHERE one = 1

-- name: set_seal_check
UPDATE instance SET seal_check = :seal_check WHERE one = 1 AND seal_check IS NULL

-- name: probe_instance
UPDATE instance SET probed_at = probed_at + 1 WHERE one = 1 RETURNING probed_at

-- name: get_workspace
SELECT workspace_id, name, status, zero_data_retention, retention_seconds, created_at
FROM workspaces WHERE workspace_id = :workspace

-- name: list_workspaces
SELECT workspace_id FROM workspaces ORDER BY workspace_id

-- name: get_principal
SELECT principal_id, kind, name, external_id, created_at
FROM principals WHERE workspace_id = :workspace AND principal_id = :principal

-- name: find_principal
SELECT principal_id, kind, name, external_id, created_at
FROM principals WHERE workspace_id = :workspace AND external_id = :external_id

-- name: list_principals
SELECT principal_id, kind, name, external_id, created_at
FROM principals WHERE workspace_id = :workspace AND principal_id > :after
ORDER BY principal_id LIMIT :limit

-- name: get_key
SELECT key_id, name, role, principal_id, created_at, expires_at, revoked_at
FROM api_keys WHERE workspace_id = :workspace AND key_id = :key

-- name: find_key
SELECT k.key_id, k.name, k.role, k.principal_id, k.created_at, k.expires_at, k.revoked_at,
  w.workspace_id, w.name, w.status, w.zero_data_retention, w.retention_seconds, w.created_at
FROM api_keys k JOIN workspaces w ON w.workspace_id = k.workspace_id
WHERE k.workspace_id = :workspace AND k.secret_hash = :secret_hash

-- name: find_keys
SELECT k.secret_hash,
  k.key_id, k.name, k.role, k.principal_id, k.created_at, k.expires_at, k.revoked_at,
  w.workspace_id, w.name, w.status, w.zero_data_retention, w.retention_seconds, w.created_at
FROM api_keys k JOIN workspaces w ON w.workspace_id = k.workspace_id
WHERE k.workspace_id = :workspace AND k.secret_hash IN (
  :secret_1, :secret_2, :secret_3, :secret_4, :secret_5, :secret_6, :secret_7, :secret_8,
  :secret_9, :secret_10, :secret_11, :secret_12, :secret_13, :secret_14, :secret_15, :secret_16)

-- name: list_keys
SELECT key_id, name, role, principal_id, created_at, expires_at, revoked_at
FROM api_keys WHERE workspace_id = :workspace AND key_id > :after
ORDER BY key_id LIMIT :limit

-- name: revoke_key
UPDATE api_keys SET revoked_at = :at
WHERE workspace_id = :workspace AND key_id = :key AND revoked_at IS NULL

-- name: get_delegation
SELECT delegation_id, principal_id, delegate_id, created_at
FROM delegations WHERE workspace_id = :workspace AND delegation_id = :delegation

-- name: find_delegation
SELECT delegation_id, principal_id, delegate_id, created_at
FROM delegations
WHERE workspace_id = :workspace AND principal_id = :principal AND delegate_id = :delegate

-- name: list_delegations
SELECT delegation_id, principal_id, delegate_id, created_at
FROM delegations WHERE workspace_id = :workspace AND delegation_id > :after
ORDER BY delegation_id LIMIT :limit

-- name: delete_delegation
DELETE FROM delegations WHERE workspace_id = :workspace AND delegation_id = :delegation

-- name: get_owner
SELECT kind, owner_id, name, principal_id, scope_kind, created_at
FROM owners WHERE workspace_id = :workspace AND kind = :kind AND owner_id = :owner

-- name: list_owners
SELECT kind, owner_id, name, principal_id, scope_kind, created_at
FROM owners WHERE workspace_id = :workspace AND kind = :kind AND owner_id > :after
ORDER BY owner_id LIMIT :limit

-- name: get_assignment
SELECT assignment_id, store_id, subject_kind, subject_id, can_read, can_write, origin, created_at
FROM assignments WHERE workspace_id = :workspace AND assignment_id = :assignment

-- name: list_assignments
SELECT assignment_id, store_id, subject_kind, subject_id, can_read, can_write, origin, created_at
FROM assignments WHERE workspace_id = :workspace AND assignment_id > :after
ORDER BY assignment_id LIMIT :limit

-- name: list_assignments_of_store
SELECT assignment_id, store_id, subject_kind, subject_id, can_read, can_write, origin, created_at
FROM assignments
WHERE workspace_id = :workspace AND store_id = :store AND assignment_id > :after
ORDER BY assignment_id LIMIT :limit

-- name: list_assignments_of_subject
SELECT assignment_id, store_id, subject_kind, subject_id, can_read, can_write, origin, created_at
FROM assignments
WHERE workspace_id = :workspace AND subject_id = :subject AND assignment_id > :after
ORDER BY assignment_id LIMIT :limit

-- name: list_assignments_of_both
SELECT assignment_id, store_id, subject_kind, subject_id, can_read, can_write, origin, created_at
FROM assignments
WHERE workspace_id = :workspace AND store_id = :store AND subject_id = :subject
  AND assignment_id > :after
ORDER BY assignment_id LIMIT :limit

-- name: delete_assignment
DELETE FROM assignments WHERE workspace_id = :workspace AND assignment_id = :assignment

-- name: lock_store
SELECT 1 FROM stores WHERE workspace_id = :workspace AND store_id = :store {lock}

-- name: get_store
SELECT {store},
  {rights}
FROM stores s
WHERE s.workspace_id = :workspace AND s.store_id = :store

-- name: open_locked_store
SELECT {store},
  {rights},
  r.name, r.revision_id, r.tree_hash, r.documents, r.total_bytes, r.version, r.updated_at,
  h.seq, h.hash
FROM stores s
JOIN refs r ON r.workspace_id = s.workspace_id AND r.store_id = s.store_id
  AND r.name = 'canonical'
JOIN streams h ON h.workspace_id = s.workspace_id AND h.stream_id = s.store_id
WHERE s.workspace_id = :workspace AND s.store_id = :store

-- name: list_rights
SELECT subject_id, can_read, can_write
FROM assignments WHERE workspace_id = :workspace AND store_id = :store LIMIT :limit

-- name: get_document
SELECT document_id, blob_id, size, change_id, created_at, updated_at
FROM documents WHERE workspace_id = :workspace AND store_id = :store AND path = :path

-- name: open_document
SELECT {store},
  {rights},
  d.document_id, d.blob_id, d.size, d.change_id, d.created_at, d.updated_at
FROM stores s
LEFT JOIN documents d ON d.workspace_id = s.workspace_id AND d.store_id = s.store_id
  AND d.path = :path
WHERE s.workspace_id = :workspace AND s.store_id = :store

-- name: open_plain_document
SELECT {store},
  {rights},
  d.document_id, d.blob_id, d.size, d.change_id, d.created_at, d.updated_at,
  b.body, b.sealed, NULL, NULL
FROM stores s
LEFT JOIN documents d ON d.workspace_id = s.workspace_id AND d.store_id = s.store_id
  AND d.path = :path
LEFT JOIN blobs b ON b.workspace_id = s.workspace_id AND b.pool_id = s.pool_id
  AND b.blob_id = d.blob_id
WHERE s.workspace_id = :workspace AND s.store_id = :store

-- name: open_sealed_document
SELECT {store},
  {rights},
  d.document_id, d.blob_id, d.size, d.change_id, d.created_at, d.updated_at,
  b.body, b.sealed, k.wrapping, k.data_key
FROM stores s
LEFT JOIN documents d ON d.workspace_id = s.workspace_id AND d.store_id = s.store_id
  AND d.path = :path
LEFT JOIN blobs b ON b.workspace_id = s.workspace_id AND b.pool_id = s.pool_id
  AND b.blob_id = d.blob_id
LEFT JOIN blob_keys k ON k.workspace_id = s.workspace_id AND k.pool_id = s.pool_id
  AND k.blob_id = d.blob_id
WHERE s.workspace_id = :workspace AND s.store_id = :store

-- name: list_stores
SELECT {store}, d.store_id,
  r.name, r.revision_id, r.tree_hash, r.documents, r.total_bytes, r.version, r.updated_at
FROM stores s
LEFT JOIN refs r ON r.workspace_id = s.workspace_id AND r.store_id = s.store_id
  AND r.name = 'canonical'
LEFT JOIN default_stores d ON d.workspace_id = s.workspace_id AND d.store_id = s.store_id
  AND d.principal_id = s.owner_id AND s.owner_kind = 'principal'
WHERE s.workspace_id = :workspace AND s.store_id > :after
  AND s.status IN (:status_1, :status_2, :status_3, :status_4)
  AND (s.name = :name OR :any_name = 1)
ORDER BY s.store_id LIMIT :limit

-- name: list_stores_of_readers
SELECT {store}, d.store_id,
  r.name, r.revision_id, r.tree_hash, r.documents, r.total_bytes, r.version, r.updated_at
FROM stores s
LEFT JOIN refs r ON r.workspace_id = s.workspace_id AND r.store_id = s.store_id
  AND r.name = 'canonical'
LEFT JOIN default_stores d ON d.workspace_id = s.workspace_id AND d.store_id = s.store_id
  AND d.principal_id = s.owner_id AND s.owner_kind = 'principal'
WHERE s.workspace_id = :workspace AND s.store_id > :after
  AND s.status IN (:status_1, :status_2, :status_3, :status_4)
  AND (s.name = :name OR :any_name = 1)
  AND EXISTS (SELECT 1 FROM assignments a WHERE a.workspace_id = s.workspace_id
    AND a.store_id = s.store_id
    AND a.subject_id IN (:subject_1, :subject_2, :subject_3, :subject_4,
    :subject_5, :subject_6))
ORDER BY s.store_id LIMIT :limit

-- name: list_stores_of
SELECT store_id FROM stores
WHERE workspace_id = :workspace AND owner_kind = :owner_kind AND owner_id = :owner
  AND store_id > :after
ORDER BY store_id LIMIT :limit

-- name: list_stores_of_workspace
SELECT store_id FROM stores
WHERE workspace_id = :workspace AND owner_kind = 'workspace' AND owner_id IS NULL
  AND store_id > :after
ORDER BY store_id LIMIT :limit

-- name: get_default_store
SELECT store_id FROM default_stores WHERE workspace_id = :workspace AND principal_id = :principal

-- name: delete_default_store
DELETE FROM default_stores WHERE workspace_id = :workspace AND principal_id = :principal

-- name: get_ref
SELECT name, revision_id, tree_hash, documents, total_bytes, version, updated_at
FROM refs WHERE workspace_id = :workspace AND store_id = :store AND name = :name

-- name: move_ref
UPDATE refs SET revision_id = :revision, tree_hash = :tree, documents = :documents,
  total_bytes = :total_bytes, version = :version, updated_at = :updated_at
WHERE workspace_id = :workspace AND store_id = :store AND name = :name
  AND revision_id = :expected_revision AND version = :expected_version

-- name: swap_ref
UPDATE refs SET revision_id = :revision, tree_hash = :tree, documents = :documents,
  total_bytes = :total_bytes, version = :version, updated_at = :updated_at
WHERE workspace_id = :workspace AND store_id = :store AND name = :name
  AND revision_id = :expected_revision AND version = :expected_version RETURNING 1

-- name: list_documents
SELECT path, blob_id, size, updated_at
FROM documents
WHERE workspace_id = :workspace AND store_id = :store
  AND path >= :start AND path > :after AND path < :end
ORDER BY path LIMIT :limit

-- name: remove_document
DELETE FROM documents WHERE workspace_id = :workspace AND store_id = :store AND path = :path

-- name: get_revision
SELECT revision_id, parent_id, tree_hash, documents, total_bytes, kind, actor, created_at
FROM revisions WHERE workspace_id = :workspace AND store_id = :store AND revision_id = :revision

-- name: get_change
SELECT change_id, revision_id, path, n, document_id, operation, moved_from, blob_id, size, seq,
  actor, created_at
FROM changes WHERE workspace_id = :workspace AND store_id = :store AND change_id = :change

-- name: list_changes
SELECT change_id, revision_id, path, n, document_id, operation, moved_from, blob_id, size, seq,
  actor, created_at
FROM changes
WHERE workspace_id = :workspace AND store_id = :store AND path = :path AND seq <= :up_to
ORDER BY seq DESC, n DESC LIMIT :limit

-- name: changed_at
SELECT c.path, c.created_at
FROM changes c
WHERE c.workspace_id = :workspace AND c.store_id = :store
  AND c.path >= :first AND c.path <= :last AND c.seq = (
    SELECT MAX(m.seq) FROM changes m
    WHERE m.workspace_id = :workspace AND m.store_id = :store
      AND m.path = c.path AND m.seq <= :up_to)
ORDER BY c.path, c.n

-- name: get_blob
SELECT b.body, b.sealed, k.wrapping, k.data_key
FROM blobs b
LEFT JOIN blob_keys k ON k.workspace_id = b.workspace_id AND k.pool_id = b.pool_id
  AND k.blob_id = b.blob_id
WHERE b.workspace_id = :workspace AND b.pool_id = :pool AND b.blob_id = :blob

-- name: get_node
SELECT body FROM nodes WHERE workspace_id = :workspace AND pool_id = :pool AND node_id = :node

-- name: get_head
SELECT seq, hash FROM streams WHERE workspace_id = :workspace AND stream_id = :stream

-- name: lock_head
SELECT seq, hash FROM streams WHERE workspace_id = :workspace AND stream_id = :stream {lock}

-- name: move_head
UPDATE streams SET seq = :seq, hash = :hash
WHERE workspace_id = :workspace AND stream_id = :stream AND seq = :expected

-- name: list_events
SELECT e.event_id, e.seq, e.type, e.created_at, e.commitment, e.hash, p.payload, p.salt
FROM events e
LEFT JOIN event_payloads p ON p.workspace_id = e.workspace_id AND p.stream_id = e.stream_id
  AND p.seq = e.seq
WHERE e.workspace_id = :workspace AND e.stream_id = :stream AND e.seq > :after
ORDER BY e.seq LIMIT :limit

-- name: set_workspace_status
UPDATE workspaces SET status = :status WHERE workspace_id = :workspace

-- name: get_receipt
SELECT receipt_id, fingerprint, result, created_at
FROM receipts
WHERE workspace_id = :workspace AND subject_id = :subject AND receipt_id = :receipt

-- name: get_job
SELECT job_id, kind, subject_id, created_at, run_at, attempts, fence, lease_until, failure,
  parked_at
FROM jobs WHERE workspace_id = :workspace AND job_id = :job

-- name: list_jobs
SELECT job_id, kind, subject_id, created_at, run_at, attempts, fence, lease_until, failure,
  parked_at
FROM jobs WHERE workspace_id = :workspace AND job_id > :after
ORDER BY job_id LIMIT :limit

-- name: due_jobs
SELECT workspace_id, job_id, kind, subject_id, created_at, run_at, attempts, fence, lease_until,
  failure, parked_at
FROM jobs
WHERE parked_at IS NULL AND run_at <= :now
  AND kind IN (:kind_1, :kind_2, :kind_3, :kind_4, :kind_5, :kind_6, :kind_7, :kind_8)
ORDER BY run_at, workspace_id, job_id LIMIT :limit

-- name: claim_job
UPDATE jobs SET fence = fence + 1, attempts = attempts + 1, run_at = :until, lease_until = :until
WHERE workspace_id = :workspace AND job_id = :job AND fence = :fence AND run_at = :run_at
  AND parked_at IS NULL
RETURNING job_id, kind, subject_id, created_at, run_at, attempts, fence, lease_until, failure,
  parked_at

-- name: hold_job
UPDATE jobs SET run_at = :until, lease_until = :until
WHERE workspace_id = :workspace AND job_id = :job AND fence = :fence RETURNING 1

-- name: return_job
UPDATE jobs SET run_at = :run_at, attempts = :attempts, lease_until = :lease_until,
  failure = :failure, parked_at = :parked_at
WHERE workspace_id = :workspace AND job_id = :job AND fence = :fence

-- name: finish_job
DELETE FROM jobs WHERE workspace_id = :workspace AND job_id = :job AND fence = :fence

-- name: list_refs
SELECT name, revision_id, tree_hash, documents, total_bytes, version, updated_at
FROM refs WHERE workspace_id = :workspace AND store_id = :store

-- name: list_revisions
SELECT revision_id, parent_id, tree_hash, documents, total_bytes, kind, actor, created_at
FROM revisions WHERE workspace_id = :workspace AND store_id = :store AND revision_id > :after
ORDER BY revision_id LIMIT :limit

-- name: list_revision_changes
SELECT change_id, revision_id, path, n, document_id, operation, moved_from, blob_id, size, seq,
  actor, created_at
FROM changes
WHERE workspace_id = :workspace AND store_id = :store AND revision_id = :revision
  AND path >= :path AND (path > :path OR n > :n)
ORDER BY path, n LIMIT :limit

-- name: list_blobs
SELECT blob_id FROM blobs WHERE workspace_id = :workspace AND pool_id = :pool AND blob_id > :after
ORDER BY blob_id LIMIT :limit

-- name: list_nodes
SELECT node_id FROM nodes WHERE workspace_id = :workspace AND pool_id = :pool AND node_id > :after
ORDER BY node_id LIMIT :limit

-- name: list_streams
SELECT stream_id, seq, hash FROM streams WHERE workspace_id = :workspace AND stream_id > :after
ORDER BY stream_id LIMIT :limit

-- name: pool_users
SELECT COUNT(*) FROM stores
WHERE workspace_id = :workspace AND pool_id = :pool AND store_id <> :store
  AND status NOT IN ('deleting', 'deleted')

-- Erasing goes by ranges of the key: a join with a limited list is planned badly on a fresh table.

-- name: erase_documents
DELETE FROM documents WHERE workspace_id = :workspace AND store_id = :store AND path <= (
  SELECT path FROM (
    SELECT path FROM documents WHERE workspace_id = :workspace AND store_id = :store
    ORDER BY path LIMIT :limit) AS head
  ORDER BY path DESC LIMIT 1) RETURNING 1

-- name: erase_changes
DELETE FROM changes WHERE workspace_id = :workspace AND store_id = :store AND change_id <= (
  SELECT change_id FROM (
    SELECT change_id FROM changes WHERE workspace_id = :workspace AND store_id = :store
    ORDER BY change_id LIMIT :limit) AS head
  ORDER BY change_id DESC LIMIT 1) RETURNING 1

-- name: erase_revisions
DELETE FROM revisions WHERE workspace_id = :workspace AND store_id = :store AND revision_id <= (
  SELECT revision_id FROM (
    SELECT revision_id FROM revisions WHERE workspace_id = :workspace AND store_id = :store
    ORDER BY revision_id LIMIT :limit) AS head
  ORDER BY revision_id DESC LIMIT 1) RETURNING 1

-- name: erase_erasures
DELETE FROM erasures WHERE workspace_id = :workspace AND store_id = :store AND path <= (
  SELECT path FROM (
    SELECT path FROM erasures WHERE workspace_id = :workspace AND store_id = :store
    ORDER BY path LIMIT :limit) AS head
  ORDER BY path DESC LIMIT 1) RETURNING 1

-- name: erase_refs
DELETE FROM refs WHERE workspace_id = :workspace AND store_id = :store AND name IN (
  SELECT name FROM refs WHERE workspace_id = :workspace AND store_id = :store
  LIMIT :limit) RETURNING 1

-- name: erase_assignments
DELETE FROM assignments WHERE workspace_id = :workspace AND store_id = :store AND subject_id <= (
  SELECT subject_id FROM (
    SELECT subject_id FROM assignments WHERE workspace_id = :workspace AND store_id = :store
    ORDER BY subject_id LIMIT :limit) AS head
  ORDER BY subject_id DESC LIMIT 1) RETURNING 1

-- name: erase_default_stores
DELETE FROM default_stores WHERE workspace_id = :workspace AND store_id = :store RETURNING 1

-- name: erase_payloads
DELETE FROM event_payloads WHERE workspace_id = :workspace AND stream_id = :store AND seq <= (
  SELECT seq FROM (
    SELECT seq FROM event_payloads WHERE workspace_id = :workspace AND stream_id = :store
    ORDER BY seq LIMIT :limit) AS head
  ORDER BY seq DESC LIMIT 1) RETURNING 1

-- name: erase_events
DELETE FROM events WHERE workspace_id = :workspace AND stream_id = :store AND seq <= (
  SELECT seq FROM (
    SELECT seq FROM events WHERE workspace_id = :workspace AND stream_id = :store
    ORDER BY seq LIMIT :limit) AS head
  ORDER BY seq DESC LIMIT 1) RETURNING 1

-- name: erase_stream
DELETE FROM streams WHERE workspace_id = :workspace AND stream_id = :store RETURNING 1

-- name: erase_blob_keys
DELETE FROM blob_keys WHERE workspace_id = :workspace AND pool_id = :pool AND blob_id <= (
  SELECT blob_id FROM (
    SELECT blob_id FROM blob_keys WHERE workspace_id = :workspace AND pool_id = :pool
    ORDER BY blob_id LIMIT :limit) AS head
  ORDER BY blob_id DESC LIMIT 1) RETURNING 1

-- name: erase_blobs
DELETE FROM blobs WHERE workspace_id = :workspace AND pool_id = :pool AND blob_id <= (
  SELECT blob_id FROM (
    SELECT blob_id FROM blobs WHERE workspace_id = :workspace AND pool_id = :pool
    ORDER BY blob_id LIMIT :limit) AS head
  ORDER BY blob_id DESC LIMIT 1) RETURNING 1

-- name: erase_nodes
DELETE FROM nodes WHERE workspace_id = :workspace AND pool_id = :pool AND node_id <= (
  SELECT node_id FROM (
    SELECT node_id FROM nodes WHERE workspace_id = :workspace AND pool_id = :pool
    ORDER BY node_id LIMIT :limit) AS head
  ORDER BY node_id DESC LIMIT 1) RETURNING 1

-- name: erase_receipts
DELETE FROM receipts WHERE workspace_id = :workspace AND subject_id = :store AND receipt_id <= (
  SELECT receipt_id FROM (
    SELECT receipt_id FROM receipts WHERE workspace_id = :workspace AND subject_id = :store
    ORDER BY receipt_id LIMIT :limit) AS head
  ORDER BY receipt_id DESC LIMIT 1) RETURNING 1
