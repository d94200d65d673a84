-- create_runs
CREATE TABLE migrations (
	name VARCHAR(100) NOT NULL,
	applied_at VARCHAR(32) NOT NULL,
	PRIMARY KEY (name)
);
CREATE TABLE runs (
	run_id VARCHAR(64) NOT NULL,
	command VARCHAR(32) NOT NULL,
	host VARCHAR(255) NOT NULL,
	profile VARCHAR(255) NOT NULL,
	started_at VARCHAR(32) NOT NULL,
	ended_at VARCHAR(32) NOT NULL,
	source VARCHAR(16) NOT NULL,
	verdict VARCHAR(16),
	exit_code INTEGER NOT NULL,
	summary TEXT NOT NULL,
	record TEXT NOT NULL,
	PRIMARY KEY (run_id)
);
CREATE INDEX runs_by_host ON runs (host, started_at);
CREATE INDEX runs_by_time ON runs (started_at);
INSERT INTO migrations VALUES ('create_runs', '2026-11-21T11:46:39+00:00');

-- create_findings
CREATE TABLE findings (
	run_id VARCHAR(64) NOT NULL,
	position INTEGER NOT NULL,
	subject VARCHAR(255) NOT NULL,
	property VARCHAR(255) NOT NULL,
	status VARCHAR(16) NOT NULL,
	expected TEXT NOT NULL,
	actual TEXT NOT NULL,
	PRIMARY KEY (run_id, position),
	FOREIGN KEY(run_id) REFERENCES runs (run_id) ON DELETE CASCADE
);
CREATE INDEX findings_by_key ON findings (subject, property, status);
INSERT INTO migrations VALUES ('create_findings', '2026-11-21T11:46:39+00:00');

-- create_baselines
CREATE TABLE baselines (
	host VARCHAR(255) NOT NULL,
	gpu_uuid VARCHAR(64) NOT NULL,
	probe VARCHAR(32) NOT NULL,
	versions VARCHAR(200) NOT NULL,
	figure VARCHAR(120) NOT NULL,
	value FLOAT NOT NULL,
	run_id VARCHAR(64) NOT NULL,
	set_at VARCHAR(32) NOT NULL,
	PRIMARY KEY (host, gpu_uuid, probe, versions, figure)
);
INSERT INTO migrations VALUES ('create_baselines', '2026-11-21T11:46:39+00:00');

-- index_runs
CREATE INDEX runs_newest ON runs (started_at, run_id);
CREATE INDEX runs_newest_of_host ON runs (host, started_at, run_id);
CREATE INDEX runs_newest_of_command ON runs (host, command, started_at, run_id, verdict);
CREATE INDEX baselines_by_run ON baselines (run_id);
DROP INDEX runs_by_host;
DROP INDEX runs_by_time;
INSERT INTO migrations VALUES ('index_runs', '2026-11-21T11:46:39+00:00');

-- create_measurements
CREATE TABLE measurements (
	run_id VARCHAR(64) NOT NULL,
	position INTEGER NOT NULL,
	host VARCHAR(255) NOT NULL,
	started_at VARCHAR(32) NOT NULL,
	source VARCHAR(16) NOT NULL,
	gpu_uuid VARCHAR(64) NOT NULL,
	probe VARCHAR(32) NOT NULL,
	versions VARCHAR(200) NOT NULL,
	figure VARCHAR(120) NOT NULL,
	value FLOAT NOT NULL,
	PRIMARY KEY (run_id, position),
	FOREIGN KEY(run_id) REFERENCES runs (run_id) ON DELETE CASCADE
);
CREATE INDEX measurements_by_host ON measurements (host, started_at);
INSERT INTO migrations VALUES ('create_measurements', '2026-11-21T11:46:39+00:00');

-- create_certified
CREATE TABLE certified (
	host VARCHAR(255) NOT NULL,
	run_id VARCHAR(64) NOT NULL,
	set_at VARCHAR(32) NOT NULL,
	PRIMARY KEY (host),
	FOREIGN KEY(run_id) REFERENCES runs (run_id)
);
INSERT INTO migrations VALUES ('create_certified', '2026-11-21T11:46:39+00:00');
