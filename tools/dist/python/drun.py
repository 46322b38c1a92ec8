"""Runs recipes, and reads the history of runs as frames of pandas or polars.

    import drun

    run = drun.run("examples/digits.star", n=2, params={"lr": 0.1})
    drun.metrics(run, "loss").plot(x="step", y="value")

Functions that read return a DataFrame of pandas, or of polars if `frames` says so:

    drun.runs(where="metrics.acc.last > 0.9", frames="polars")

Without `frames` it is polars if only polars is imported or installed, else pandas.
The history is the folder `home`, else $DRUN_HOME, else `.drun` in the current folder.
Where drun itself fails, an Error has its words and its exit code.
"""

import datetime
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
import time

__all__ = ["Error", "Run", "artifact", "artifacts", "metrics", "program", "run", "runs", "sql", "start"]


class Error(Exception):
    """What drun said when it failed, with its exit code (`drun help exit-codes`)."""

    def __init__(self, words, code):
        super().__init__(words)
        self.code = code


def program():
    """The path of the program drun: the one installed with this module, else the first in $PATH."""
    for scheme in sysconfig.get_default_scheme(), os.name + "_user":
        path = os.path.join(sysconfig.get_path("scripts", scheme), "drun")
        if os.access(path, os.X_OK):
            return path
    path = shutil.which("drun")
    if path is None:
        raise FileNotFoundError("the program drun is neither beside Python nor in $PATH")
    return path


def runs(where=None, tag=None, home=None, frames=None):
    """All runs, the newest first, a row each.

    Columns: id, name, status, recipe, world_size, started and others; params.NAME of each parameter;
    metrics.NAME.last, .first, .min, .max and .count of each metric.

    Args:
        where: an expression, as `drun runs --where` takes it, such as "params.lr < 0.1"; or a list, of which all must be true.
        tag: only runs with this tag, or with all of a list.
    """
    rows = []
    for r in json.loads(_drun(home, "runs", "--all", "--json", *_options(where=where, tag=tag))):
        row = {k: v for k, v in r.items() if not isinstance(v, (dict, list))}
        row["started"] = _time(row["started"])
        row["tags"] = " ".join(r["tags"])
        row["checkpoints"] = len(r["checkpoints"])
        for name, value in r["params"].items():
            row["params." + name] = json.dumps(value) if isinstance(value, (dict, list)) else value
        for name, numbers in r["metrics"].items():
            for which, value in numbers.items():
                row["metrics.%s.%s" % (name, which)] = _number(value)
        rows.append(row)
    return _frame(rows, frames)


def metrics(runs, *names, home=None, frames=None):
    """All points of runs, exactly as they were logged, a row each: run, run_name, metric, step, rank, value, time.

    Args:
        runs: a Run, an id, a name or "last"; or a list of them.
        names: only these metrics.
    """
    runs = list(runs) if isinstance(runs, (list, tuple)) else [runs]
    if not runs:
        raise ValueError("no run is named")
    home = home or next((r.home for r in runs if isinstance(r, Run)), None)
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "points.parquet")
        _drun(home, "export", "--to", "parquet", "--output", path, *map(_name, runs))
        frame = _library(frames).read_parquet(path)
    if not names:
        return frame
    chosen = [m in names for m in frame["metric"]]
    return frame.filter(chosen) if hasattr(frame, "with_columns") else frame[chosen].reset_index(drop=True)


def artifacts(run, home=None, frames=None):
    """What a run has kept, a row each: name, step, kind, bytes and others. artifact() has the content."""
    return _frame(json.loads(_drun(_home(run, home), "artifacts", _name(run), "--json")), frames)


def artifact(run, name, step=None, kind=None, home=None):
    """The content of an artifact as bytes: a PNG file of an image, JSON of a histogram or a table.

    Args:
        step: the one of this step; without it the newest.
        kind: if several kinds have the name: "bytes", "text", "tensor", "image", "histogram" or "table".
    """
    return _drun(_home(run, home), "artifacts", _name(run), name, "--output", "-", *_options(step=step, kind=kind))


def sql(query, home=None, frames=None):
    """The result of an SQL query on the history, whose tables docs/history-tables.md describes."""
    return _frame(json.loads(_drun(home, "sql", query, "--json")), frames)


class Run:
    """A run that start() began, and that goes on by itself. It can stand wherever a run is asked for."""

    def __init__(self, command, home):
        self.home, self._id, self._result = home, None, None
        self._words = tempfile.TemporaryFile("w+"), tempfile.TemporaryFile("w+")
        self._began = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self._words[0], stderr=self._words[1],
            start_new_session=True)  # what interrupts or ends a notebook's kernel goes to its whole group

    @property
    def id(self):
        """The run's number; waits until it has one."""
        query = "select id from runs where pid = %d and started > '%s' order by id desc limit 1" % (self._process.pid, self._began)
        while self._id is None:
            ended = self.ended
            try:
                found = json.loads(_drun(self.home, "sql", query, "--json"))
            except Error:  # there is no history yet
                found = []
            if found:
                self._id = found[0]["id"]
            elif ended:
                self.wait()
                raise Error("the run has no row in the history of %s" % (self.home or ".drun"), 7)
            else:
                time.sleep(0.05)
        return self._id

    @property
    def ended(self):
        """Whether the run is over."""
        return self._process.poll() is not None

    def wait(self, timeout=None):
        """Waits for the end, and returns the run as `drun show --json` prints it.

        An Error says why the run failed; subprocess.TimeoutExpired, that it goes on after so many seconds.
        """
        code = self._process.wait(timeout)
        if code != 0:
            raise Error(_read(self._words[1]).strip() or "drun ended with %d" % code, code)
        if self._result is None:
            self._result = json.loads(_read(self._words[0]).splitlines()[-1])
            self._id = self._result["id"]
        return self._result

    def stop(self):
        """Ends the run, as Ctrl-C does; wait() waits for that."""
        if not self.ended:
            self._process.send_signal(signal.SIGINT)

    def __repr__(self):
        code = self._process.poll()
        state = "goes on" if code is None else "done" if code == 0 else "ended with %d" % code
        return "<drun.Run %s: %s>" % ("without an id yet" if self._id is None else self._id, state)


def start(recipe, n=1, params=None, seed=None, name=None, tag=None, home=None, args=()):
    """Starts a run, and returns a Run while it goes on. With this process it does not end.

    Args:
        recipe: the path of a recipe.
        n: the number of ranks.
        params: the recipe's parameters, such as {"lr": 0.1}.
        tag: a tag, or a list of them.
        args: other options of `drun run`, such as ["--backend", "gloo"].
    """
    command = _command(home, "run", os.fspath(recipe), "--nproc", str(n), "--json", *_options(seed=seed, name=name, tag=tag), *args)
    for key, value in (params or {}).items():
        command += ["--param", "%s=%s" % (key, value if isinstance(value, str) else json.dumps(value))]
    return Run(command, home)


def run(recipe, **options):
    """Runs a recipe to its end, and returns the Run. An interrupt ends the run, too. The options are start()'s."""
    r = start(recipe, **options)
    try:
        r.wait()
    except KeyboardInterrupt:
        r.stop()
        r._process.wait()
        raise
    return r


def _command(home, *args):
    return [program(), *args, *(["--home", os.fspath(home)] if home else [])]


def _drun(home, *args):
    done = subprocess.run(_command(home, *args), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != 0:
        raise Error(done.stderr.decode(errors="replace").strip(), done.returncode)
    return done.stdout


def _options(**values):
    """Flags with their values; of a list each."""
    out = []
    for flag, value in values.items():
        for v in value if isinstance(value, (list, tuple)) else [] if value is None else [value]:
            out += ["--" + flag, str(v)]
    return out


def _name(run):
    return str(run.id if isinstance(run, Run) else run)


def _home(run, home):
    return home or (run.home if isinstance(run, Run) else None)


def _read(file):
    file.seek(0)
    return file.read()


def _time(text):
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))


def _number(value):
    """A number of drun's JSON, where NaN and infinities are strings."""
    return float(value) if isinstance(value, str) else value


def _library(frames):
    if frames is None:
        ready = [m for m in ("pandas", "polars") if m in sys.modules] or [m for m in ("pandas", "polars") if importlib.util.find_spec(m)]
        if not ready:
            raise ImportError("drun's frames need pandas with pyarrow, or polars: pip install 'drun[pandas]' or 'drun[polars]'")
        frames = ready[0]
    if frames not in ("pandas", "polars"):
        raise ValueError("frames is %r; it can be 'pandas' or 'polars'" % (frames,))
    return importlib.import_module(frames)


def _frame(rows, frames):
    library = _library(frames)
    columns = list(dict.fromkeys(c for row in rows for c in row))
    values = {c: [row.get(c) for row in rows] for c in columns}
    return library.DataFrame(values, strict=False) if library.__name__ == "polars" else library.DataFrame(values)
