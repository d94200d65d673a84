-- create_runs
CREATE TABLE migrations (
	name TEXT COLLATE "C" NOT NULL,
	applied_at TEXT COLLATE "C" NOT NULL,
	PRIMARY KEY (name)
);
CREATE TABLE runs (
	run_id TEXT COLLATE "C" NOT NULL,
	command TEXT COLLATE "C" NOT NULL,
	host TEXT COLLATE "C" NOT NULL,
	profile TEXT COLLATE "C" NOT NULL,
	started_at TEXT COLLATE "C" NOT NULL,
	ended_at TEXT COLLATE "C" NOT NULL,
	source TEXT COLLATE "C" NOT NULL,
	verdict TEXT COLLATE "C",
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
	run_id TEXT COLLATE "C" NOT NULL,
	position INTEGER NOT NULL,
	subject TEXT COLLATE "C" NOT NULL,
	property TEXT COLLATE "C" NOT NULL,
	status TEXT COLLATE "C" NOT NULL,
	expected TEXT NOT NULL,
	actual TEXT NOT NULL,
	PRIMARY KEY (run_id, position),
	FOREIGN KEY(run_id) REFERENCES runs (run_id) ON DELETE CASCADE
);
CREATE INDEX findings_by_key ON findings (subject, property, status);
INSERT INTO migrations VALUES ('create_findings', '2026-11-21T11:46:39+00:00');

-- create_baselines
CREATE TABLE baselines (
	host TEXT COLLATE "C" NOT NULL,
	gpu_uuid TEXT COLLATE "C" NOT NULL,
	probe TEXT COLLATE "C" NOT NULL,
	versions TEXT COLLATE "C" NOT NULL,
	figure TEXT COLLATE "C" NOT NULL,
	value FLOAT NOT NULL,
	run_id TEXT COLLATE "C" NOT NULL,
	set_at TEXT COLLATE "C" NOT NULL,
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
	run_id TEXT COLLATE "C" NOT NULL,
	position INTEGER NOT NULL,
	host TEXT COLLATE "C" NOT NULL,
	started_at TEXT COLLATE "C" NOT NULL,
	source TEXT COLLATE "C" NOT NULL,
	gpu_uuid TEXT COLLATE "C" NOT NULL,
	probe TEXT COLLATE "C" NOT NULL,
	versions TEXT COLLATE "C" NOT NULL,
	figure TEXT COLLATE "C" NOT NULL,
	value FLOAT NOT NULL,
	PRIMARY KEY (run_id, position),
	FOREIGN KEY(run_id) REFERENCES runs (run_id) ON DELETE CASCADE
);
CREATE INDEX measurements_by_host ON measurements (host, started_at);
INSERT INTO migrations VALUES ('create_measurements', '2026-11-21T11:46:39+00:00');

-- create_certified
CREATE TABLE certified (
	host TEXT COLLATE "C" NOT NULL,
	run_id TEXT COLLATE "C" NOT NULL,
	set_at TEXT COLLATE "C" NOT NULL,
	PRIMARY KEY (host),
	FOREIGN KEY(run_id) REFERENCES runs (run_id)
);
INSERT INTO migrations VALUES ('create_certified', '2026-11-21T11:46:39+00:00');
