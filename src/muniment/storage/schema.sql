-- The schema, one text for SQLite and PostgreSQL. {bytes}, {int} and {clustered} are filled in.
--
-- Ids (16 bytes), hashes (32 bytes) and paths (UTF-8) are bytes, so no collation orders anything.
-- Times are UTC microseconds. workspace_id comes first in every tenant table's primary key.
-- Every column stands on a line of its own: storage/statements.py reads the columns from here.

CREATE TABLE migrations (
  version {int} NOT NULL,
  name TEXT NOT NULL,
  applied_at {int} NOT NULL,
  PRIMARY KEY (version)
);

-- One row: what all nodes of the deployment share. seal_check opens under the right master key.
CREATE TABLE instance (
  one {int} NOT NULL,
  cursor_key {bytes} NOT NULL,
  seal_check {bytes},
  probed_at {int} NOT NULL,
  PRIMARY KEY (one)
);

CREATE TABLE workspaces (
  workspace_id {bytes} NOT NULL,
  name TEXT NOT NULL,
  status TEXT NOT NULL,
  zero_data_retention {int} NOT NULL,
  retention_seconds {int},
  created_at {int} NOT NULL,
  PRIMARY KEY (workspace_id)
){clustered};

CREATE TABLE principals (
  workspace_id {bytes} NOT NULL,
  principal_id {bytes} NOT NULL,
  kind TEXT NOT NULL,
  name TEXT NOT NULL,
  external_id TEXT,
  created_at {int} NOT NULL,
  PRIMARY KEY (workspace_id, principal_id)
){clustered};
CREATE UNIQUE INDEX principals_external ON principals (workspace_id, external_id);

CREATE TABLE api_keys (
  workspace_id {bytes} NOT NULL,
  key_id {bytes} NOT NULL,
  principal_id {bytes} NOT NULL,
  name TEXT NOT NULL,
  role TEXT NOT NULL,
  secret_hash {bytes} NOT NULL,
  created_at {int} NOT NULL,
  expires_at {int},
  revoked_at {int},
  PRIMARY KEY (workspace_id, key_id)
){clustered};
CREATE UNIQUE INDEX api_keys_secret ON api_keys (workspace_id, secret_hash);

CREATE TABLE delegations (
  workspace_id {bytes} NOT NULL,
  delegation_id {bytes} NOT NULL,
  principal_id {bytes} NOT NULL,
  delegate_id {bytes} NOT NULL,
  created_at {int} NOT NULL,
  PRIMARY KEY (workspace_id, delegation_id)
){clustered};
CREATE UNIQUE INDEX delegations_pair ON delegations (workspace_id, principal_id, delegate_id);

-- Agents, Sessions and surface scopes, as far as they can own a store.
CREATE TABLE owners (
  workspace_id {bytes} NOT NULL,
  kind TEXT NOT NULL,
  owner_id {bytes} NOT NULL,
  name TEXT NOT NULL,
  principal_id {bytes} NOT NULL,
  scope_kind TEXT,
  created_at {int} NOT NULL,
  PRIMARY KEY (workspace_id, kind, owner_id)
){clustered};

-- subject_id is a letter for the kind (p, w, a, s, c) and then the 16 bytes of the id.
CREATE TABLE assignments (
  workspace_id {bytes} NOT NULL,
  store_id {bytes} NOT NULL,
  subject_id {bytes} NOT NULL,
  assignment_id {bytes} NOT NULL,
  subject_kind TEXT NOT NULL,
  can_read {int} NOT NULL,
  can_write {int} NOT NULL,
  origin TEXT NOT NULL,
  created_at {int} NOT NULL,
  PRIMARY KEY (workspace_id, store_id, subject_id, assignment_id)
){clustered};
CREATE UNIQUE INDEX assignments_id ON assignments (workspace_id, assignment_id);
CREATE INDEX assignments_subject ON assignments (workspace_id, subject_id, store_id);

CREATE TABLE stores (
  workspace_id {bytes} NOT NULL,
  store_id {bytes} NOT NULL,
  name TEXT NOT NULL,
  description TEXT,
  owner_kind TEXT NOT NULL,
  owner_id {bytes},
  status TEXT NOT NULL,
  version {int} NOT NULL,
  generation {int} NOT NULL,
  promotion_policy TEXT NOT NULL,
  require_distinct_reviewer {int} NOT NULL,
  pool_id {bytes} NOT NULL,
  created_by {bytes} NOT NULL,
  created_at {int} NOT NULL,
  updated_at {int} NOT NULL,
  archived_at {int},
  deleted_at {int},
  last_event_hash {bytes},
  PRIMARY KEY (workspace_id, store_id)
){clustered};
CREATE INDEX stores_owner ON stores (workspace_id, owner_kind, owner_id, store_id);
CREATE INDEX stores_pool ON stores (workspace_id, pool_id);

CREATE TABLE default_stores (
  workspace_id {bytes} NOT NULL,
  principal_id {bytes} NOT NULL,
  store_id {bytes} NOT NULL,
  PRIMARY KEY (workspace_id, principal_id)
){clustered};

-- The only mutable objects of the versioned model; tree and totals are those of the revision.
CREATE TABLE refs (
  workspace_id {bytes} NOT NULL,
  store_id {bytes} NOT NULL,
  name TEXT NOT NULL,
  revision_id {bytes} NOT NULL,
  tree_hash {bytes} NOT NULL,
  documents {int} NOT NULL,
  total_bytes {int} NOT NULL,
  version {int} NOT NULL,
  updated_at {int} NOT NULL,
  PRIMARY KEY (workspace_id, store_id, name)
){clustered};

CREATE TABLE revisions (
  workspace_id {bytes} NOT NULL,
  store_id {bytes} NOT NULL,
  revision_id {bytes} NOT NULL,
  parent_id {bytes},
  tree_hash {bytes} NOT NULL,
  documents {int} NOT NULL,
  total_bytes {int} NOT NULL,
  kind TEXT NOT NULL,
  actor {bytes} NOT NULL,
  created_at {int} NOT NULL,
  PRIMARY KEY (workspace_id, store_id, revision_id)
){clustered};

-- A row per (revision, path, n) on every ref; seq is the canonical position, null elsewhere.
CREATE TABLE changes (
  workspace_id {bytes} NOT NULL,
  store_id {bytes} NOT NULL,
  change_id {bytes} NOT NULL,
  revision_id {bytes} NOT NULL,
  path {bytes} NOT NULL,
  n {int} NOT NULL,
  document_id {bytes} NOT NULL,
  operation TEXT NOT NULL,
  moved_from {bytes},
  blob_id {bytes},
  size {int},
  seq {int},
  actor {bytes} NOT NULL,
  created_at {int} NOT NULL,
  PRIMARY KEY (workspace_id, store_id, change_id)
){clustered};
CREATE UNIQUE INDEX changes_revision ON changes (workspace_id, store_id, revision_id, path, n);
CREATE INDEX changes_path ON changes (workspace_id, store_id, path, seq);

-- The projection of canonical: a document's identity lives here, outside the hashed tree.
CREATE TABLE documents (
  workspace_id {bytes} NOT NULL,
  store_id {bytes} NOT NULL,
  path {bytes} NOT NULL,
  document_id {bytes} NOT NULL,
  blob_id {bytes} NOT NULL,
  size {int} NOT NULL,
  change_id {bytes} NOT NULL,
  created_at {int} NOT NULL,
  updated_at {int} NOT NULL,
  PRIMARY KEY (workspace_id, store_id, path)
){clustered};

-- What has been erased: (store, path, blob) masks reads of revisions up to the fence.
CREATE TABLE erasures (
  workspace_id {bytes} NOT NULL,
  store_id {bytes} NOT NULL,
  path {bytes} NOT NULL,
  blob_id {bytes} NOT NULL,
  fence {int} NOT NULL,
  revision_id {bytes} NOT NULL,
  created_at {int} NOT NULL,
  PRIMARY KEY (workspace_id, store_id, path, blob_id)
){clustered};

-- Bytes by hash. Nothing dedupes across pools. sealed = 1: AES-256-GCM under the key in blob_keys.
CREATE TABLE blobs (
  workspace_id {bytes} NOT NULL,
  pool_id {bytes} NOT NULL,
  blob_id {bytes} NOT NULL,
  sealed {int} NOT NULL,
  body {bytes} NOT NULL,
  PRIMARY KEY (workspace_id, pool_id, blob_id)
);

-- wrapping = 0: the data key lies here as it is; otherwise the number of the master key over it.
CREATE TABLE blob_keys (
  workspace_id {bytes} NOT NULL,
  pool_id {bytes} NOT NULL,
  blob_id {bytes} NOT NULL,
  wrapping {int} NOT NULL,
  data_key {bytes} NOT NULL,
  PRIMARY KEY (workspace_id, pool_id, blob_id)
){clustered};

CREATE TABLE nodes (
  workspace_id {bytes} NOT NULL,
  pool_id {bytes} NOT NULL,
  node_id {bytes} NOT NULL,
  body {bytes} NOT NULL,
  PRIMARY KEY (workspace_id, pool_id, node_id)
);

-- Where each event stream ends.
CREATE TABLE streams (
  workspace_id {bytes} NOT NULL,
  stream_id {bytes} NOT NULL,
  seq {int} NOT NULL,
  hash {bytes} NOT NULL,
  PRIMARY KEY (workspace_id, stream_id)
){clustered};

CREATE TABLE events (
  workspace_id {bytes} NOT NULL,
  stream_id {bytes} NOT NULL,
  seq {int} NOT NULL,
  event_id {bytes} NOT NULL,
  type TEXT NOT NULL,
  created_at {int} NOT NULL,
  commitment {bytes} NOT NULL,
  hash {bytes} NOT NULL,
  PRIMARY KEY (workspace_id, stream_id, seq)
){clustered};

-- The erasable side of an event: the hash above commits to sha256(salt + payload) only.
CREATE TABLE event_payloads (
  workspace_id {bytes} NOT NULL,
  stream_id {bytes} NOT NULL,
  seq {int} NOT NULL,
  salt {bytes} NOT NULL,
  payload {bytes} NOT NULL,
  PRIMARY KEY (workspace_id, stream_id, seq)
){clustered};

-- What an idempotency key has produced: ids only, never content. subject_id is the store or the
-- workspace; receipt_id a hash over sender, route and key.
CREATE TABLE receipts (
  workspace_id {bytes} NOT NULL,
  subject_id {bytes} NOT NULL,
  receipt_id {bytes} NOT NULL,
  fingerprint {bytes} NOT NULL,
  result {bytes} NOT NULL,
  created_at {int} NOT NULL,
  PRIMARY KEY (workspace_id, subject_id, receipt_id)
){clustered};

-- run_at is when a job is due, or its lease ends; fence counts the claims.
CREATE TABLE jobs (
  workspace_id {bytes} NOT NULL,
  job_id {bytes} NOT NULL,
  kind TEXT NOT NULL,
  subject_id {bytes} NOT NULL,
  created_at {int} NOT NULL,
  run_at {int} NOT NULL,
  attempts {int} NOT NULL,
  fence {int} NOT NULL,
  lease_until {int},
  failure TEXT,
  parked_at {int},
  PRIMARY KEY (workspace_id, job_id)
){clustered};
CREATE INDEX jobs_due ON jobs (parked_at, run_at);
