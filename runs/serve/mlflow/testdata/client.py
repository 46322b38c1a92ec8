"""Logs to drun with MLflow's own client, and compares what it then reads with what MLflow's SQLite store says of the same."""

import math
import os
import random
import sys
import tempfile

import mlflow
from mlflow import MlflowClient
from mlflow.entities import Metric, Param, RunTag, ViewType
from mlflow.exceptions import MlflowException

SERVER = sys.argv[1]
SCRATCH = sys.argv[2]


def expect(ok, *what):
    if not ok:
        raise SystemExit("wrong: " + " ".join(map(str, what)))


def fill(client):
    """Logs the same runs to any store."""
    pick = random.Random(7)
    names = {}
    for experiment in ("vision", "text"):
        eid = client.create_experiment(experiment, tags={"team": experiment})
        for n in range(20):
            run = client.create_run(eid, start_time=1000 * (n + 1), run_name=f"run {n % 7}", tags={"even": str(n % 2 == 0), "mlflow.user": f"user{n % 3}"})
            rid = run.info.run_id
            names[rid] = f"{experiment}-{n}"
            params = [Param("lr", str(pick.choice([0.1, 0.03, 1e-05, 1000000.0, 12]))), Param("model", pick.choice(["tree", "Tree_1", "net%", "a*b"]))]
            if n % 3:
                params.append(Param("depth", str(n)))
            points = [Metric("loss", pick.random(), 1000 * n + k, k) for k in range(pick.randint(1, 5))]
            points += [Metric("acc", round(pick.random(), 1), 5, 0)]
            if n % 5 == 0:
                points.append(Metric("rare", pick.choice([-1.0, 0.0, 2.5]), 7, -3))
            client.log_batch(rid, points, params, [RunTag("note", "x" * (n * 20)), RunTag("size", pick.choice(["s", "M", "l"]))])
            client.log_batch(rid, points, params)  # again, as after an answer that was lost
            if n % 4:
                client.set_terminated(rid, ["FINISHED", "FAILED", "KILLED"][n % 3], end_time=1000 * n + 1500)
            if n % 11 == 10:
                client.delete_run(rid)
    return names


FILTERS = [
    "", "metrics.loss < 0.5", "metrics.loss >= 0.2 and metrics.acc != 0.5", "metrics.rare = 2.5", "metrics.rare <= 0", "metrics.none > 1", "params.lr = '0.1'", "params.lr != '0.1'",
    "params.lr = '1000000.0'", "params.lr LIKE '1%'", "params.model ILIKE 'tree%'", "params.model LIKE 'tree%'", "params.model = 'net%'", "params.model LIKE 'a*b'", "params.depth != '7'",
    "params.`depth` = '7'", 'params."depth" = "8"', "tags.even = 'True' AND params.model = 'tree'", "tags.size != 's'", "tags.size ILIKE 'm'", "tags.note LIKE 'xx%'", "tag.mlflow.runName = 'run 3'",
    "attributes.status = 'FINISHED'", "status = 'RUNNING'", "attributes.status != 'RUNNING'", "attributes.start_time > 5000", "start_time <= 5000", "end_time >= 7500",
    "attributes.run_name LIKE 'run%'", "run_name = 'run 1'", "attributes.user_id = 'user1'", "user_id != 'user1'", "attr.status = 'FAILED' and metric.loss < 0.9 and parameter.model != 'tree'",
]
ORDERS = [[], ["metrics.loss"], ["metrics.loss DESC"], ["metrics.rare DESC"], ["metrics.rare ASC", "metrics.acc DESC"], ["params.depth"], ["params.lr DESC", "start_time ASC"], ["tags.size"], ["attributes.status", "run_name DESC"],
          ["start_time DESC"], ["end_time"], ["`metrics`.`acc`", "metrics.loss desc"]]


def look(client, names):
    """What searches find, with the runs' names instead of their ids."""
    found = {}
    eids = [client.get_experiment_by_name(n).experiment_id for n in ("vision", "text")]
    for view in (ViewType.ACTIVE_ONLY, ViewType.ALL, ViewType.DELETED_ONLY):
        for order in ORDERS:
            # Ties are broken by the ids of runs, which differ.
            runs = client.search_runs(eids, "", view, 100, order)
            found[view, tuple(order)] = [key(r, order) for r in runs]
        for text in FILTERS:
            runs = client.search_runs(eids, text, view, 100)
            found[view, text] = sorted(names[r.info.run_id] for r in runs)
    pages, token = [], None
    while True:
        page = client.search_runs(eids, "metrics.acc >= 0", order_by=["params.model"], max_results=7, page_token=token)
        pages += [names[r.info.run_id] for r in page]
        token = page.token
        if not token:
            break
    found["pages"] = sorted(pages)
    for rid, name in names.items():
        run = client.get_run(rid)
        found[name] = (run.info.run_name, run.info.status, run.info.start_time, run.info.end_time, run.info.user_id, run.info.lifecycle_stage, sorted(run.data.params.items()), sorted(run.data.metrics.items()),
                       sorted(run.data.tags.items()), [[(m.value, m.step, m.timestamp) for m in client.get_metric_history(rid, k)] for k in ("loss", "rare")])
    found["experiments"] = sorted((e.name, e.lifecycle_stage, str(e.tags)) for e in client.search_experiments())
    for text in ("name LIKE 't%'", "tags.team = 'vision'", "name ILIKE 'VIS%' AND tags.team != 'text'"):
        found["experiments", text] = [e.name for e in client.search_experiments(filter_string=text, order_by=["name DESC"])]
    return found


def key(run, order):
    """What a run is sorted by."""
    def value(column):
        kind, _, name = column.split()[0].replace("`", "").partition(".")
        if not name:
            kind, name = "attributes", kind
        if kind == "attributes":
            return getattr(run.info, name)
        return getattr(run.data, kind).get(name)
    return [value(c) for c in order + ["start_time"]]


ours = MlflowClient(SERVER)
if sys.argv[3:] == ["long"]:
    theirs = MlflowClient("sqlite:///" + os.path.join(SCRATCH, "oracle.db"))
    a, b = look(ours, fill(ours)), look(theirs, fill(theirs))
    for what in b:
        expect(a[what] == b[what], what, "\ndrun:  ", a[what], "\nMLflow:", b[what])
    print(f"{len(b)} answers as MLflow's")
    # Errors have MLflow's codes.
    for wrong in ("metrics.loss > 'x'", "params.lr > '1'", "color.x = '1'", "metrics.loss"):
        codes = []
        for client in (ours, theirs):
            try:
                client.search_runs([client.get_experiment_by_name("vision").experiment_id], wrong)
                codes.append("no error")
            except MlflowException as e:
                codes.append(e.error_code)
        expect(codes[0] == codes[1], wrong, codes)

# Special numbers, and artifacts.
mlflow.set_tracking_uri(SERVER)
mlflow.set_experiment("artifacts")
with mlflow.start_run() as run:
    mlflow.log_metric("nan", math.nan)
    mlflow.log_metric("inf", math.inf)
    mlflow.log_metric("minus", -math.inf, step=-5)
    mlflow.log_text("hello ä", "notes/hello.txt")
    mlflow.log_dict({"a": 1}, "a.json")
    path = os.path.join(SCRATCH, "large.bin")
    with open(path, "wb") as f:
        f.write(os.urandom(3 << 20))
    mlflow.log_artifact(path, "big")
got = ours.get_run(run.info.run_id).data.metrics
expect(math.isnan(got["nan"]) and got["inf"] == math.inf and got["minus"] == -math.inf, got)
expect(sorted(f.path for f in ours.list_artifacts(run.info.run_id)) == ["a.json", "big", "notes"], ours.list_artifacts(run.info.run_id))
expect(mlflow.artifacts.load_text(run.info.artifact_uri + "/notes/hello.txt") == "hello ä")
fetched = ours.download_artifacts(run.info.run_id, "big/large.bin", SCRATCH)
expect(open(fetched, "rb").read() == open(path, "rb").read(), "the artifact differs")
print("artifacts")

# Autologging of scikit-learn, with a logged model.
import sklearn.datasets
import sklearn.linear_model

mlflow.sklearn.autolog()
mlflow.set_experiment("sklearn")
x, y = sklearn.datasets.load_iris(return_X_y=True)
with mlflow.start_run() as run:
    model = sklearn.linear_model.LogisticRegression(max_iter=200, C=0.5).fit(x, y)
    model.score(x, y)
run = ours.get_run(run.info.run_id)
expect(run.data.params["C"] == "0.5" and run.data.params["max_iter"] == "200" and run.data.metrics["training_accuracy_score"] > 0.9, run.data)
expect(run.inputs.dataset_inputs and run.outputs.model_outputs, run.inputs, run.outputs)
models = mlflow.search_logged_models(experiment_ids=[run.info.experiment_id], output_format="list")
expect(len(models) == 1 and str(models[0].status) == "READY" and models[0].source_run_id == run.info.run_id, models)
back = mlflow.sklearn.load_model(models[0].model_uri)
expect((back.predict(x) == model.predict(x)).all(), "the model that came back predicts something else")
table = mlflow.search_runs(experiment_names=["sklearn"], filter_string="params.C = '0.5' and metrics.training_accuracy_score > 0.9 and datasets.context = 'train'")
expect(len(table) == 1, table)
try:
    mlflow.register_model(models[0].model_uri, "name")
    expect(False, "a model was registered")
except MlflowException as e:
    expect("no model registry" in str(e), e)
print("scikit-learn")
