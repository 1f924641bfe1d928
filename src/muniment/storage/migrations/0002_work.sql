-- Receipts by what they are about, and jobs that can be parked. No receipt was written before.

DROP TABLE receipts;
CREATE TABLE receipts (
  workspace_id {bytes} NOT NULL,
  subject_id {bytes} NOT NULL,
  receipt_id {bytes} NOT NULL,
  fingerprint {bytes} NOT NULL,
  result {bytes} NOT NULL,
  created_at {int} NOT NULL,
  PRIMARY KEY (workspace_id, subject_id, receipt_id)
){clustered};

CREATE TABLE jobs_before AS
SELECT workspace_id, job_id, kind, subject_id, created_at, run_at FROM jobs;
DROP TABLE jobs;
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
INSERT INTO jobs (workspace_id, job_id, kind, subject_id, created_at, run_at, attempts, fence)
SELECT workspace_id, job_id, kind, subject_id, created_at, run_at, 0, 0 FROM jobs_before;
DROP TABLE jobs_before;
