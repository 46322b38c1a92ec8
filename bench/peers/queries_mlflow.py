"""What a store of MLflow's of 10,000 runs with 100 parameters and metrics each takes to answer. Each metric has its latest
value; only the run that is read has ten points of each."""
import os
import random
import sqlite3
import sys
import time
import uuid

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
import mlflow
from mlflow.tracking import MlflowClient

RUNS, NAMES, POINTS, TIMES = 10_000, 100, 10, 3
folder = sys.argv[1]
path = f"{folder}/mlflow.db"
client = MlflowClient(f"sqlite:///{path}")
middle = uuid.UUID(int=RUNS // 2).hex


def fill():
    experiment = client.create_experiment("large", artifact_location=folder)
    chance = random.Random(1)
    with sqlite3.connect(path) as db:
        for i in range(RUNS):
            run = uuid.UUID(int=i).hex
            at = 1_700_000_000_000 + 60_000 * i
            db.execute("INSERT INTO runs (run_uuid, name, source_type, user_id, status, start_time, end_time, lifecycle_stage, artifact_uri, experiment_id)"
                       " VALUES (?, ?, 'UNKNOWN', 'u', 'FINISHED', ?, ?, 'active', ?, ?)", (run, f"run-{i}", at, at + 1000, folder, int(experiment)))
            db.executemany("INSERT INTO params (key, value, run_uuid) VALUES (?, ?, ?)",
                           [("lr" if k == 0 else f"p{k}", str(chance.random()), run) for k in range(NAMES)])
            values = [("acc" if k == 0 else f"m{k}", chance.random()) for k in range(NAMES)]
            db.executemany("INSERT INTO latest_metrics (key, value, timestamp, step, is_nan, run_uuid) VALUES (?, ?, ?, ?, 0, ?)",
                           [(name, value, at, POINTS - 1, run) for name, value in values])
            if run == middle:
                db.executemany("INSERT INTO metrics (key, value, timestamp, step, is_nan, run_uuid) VALUES (?, ?, ?, ?, 0, ?)",
                               [(name, value, at + s, s, run) for name, value in values for s in range(POINTS)])
    return experiment


known = client.get_experiment_by_name("large")
experiment = known.experiment_id if known else fill()


def report(name, ask):
    for _ in range(TIMES):
        started = time.perf_counter()
        ask()
        print(f"large history, {name}: {time.perf_counter() - started:.5f} s", flush=True)


def search():
    assert client.search_runs([experiment], "metrics.acc > 0.9", order_by=["metrics.acc DESC"], max_results=1000)


def metrics():
    for name in client.get_run(middle).data.metrics:
        assert len(client.get_metric_history(middle, name)) == POINTS


report("runs", lambda: client.search_runs([experiment], max_results=100))
report("runs --where --sort", search)
report("show", lambda: client.get_run(middle))
report("metrics of a run", metrics)
