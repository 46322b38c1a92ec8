// Scenarios of tools/dap's tests, by VS Code's own client for tests of debug adapters. Each is called with the client and a
// folder that has its recipes; DRUN is the program.
const path = require("path"), assert = require("assert"), fs = require("fs"), child = require("child_process");
const { DebugClient } = require(path.join(process.env.CLIENT, "node_modules/@vscode/debugadapter-testsupport"));

const drun = process.env.DRUN, dir = process.cwd();

class Client extends DebugClient {
  constructor() {
    super(drun, "dap", "drun", { cwd: dir, env: process.env });
    this.defaultTimeout = 60000;
    this.stops = new Map();
    this.text = "";
    this.watchers = [];
    this.over = false;
    this.on("stopped", e => { this.stops.set(e.body.threadId, e.body); this.wake(); });
    this.on("output", e => { this.text += e.body.output; this.wake(); });
    this.gone = new Set(); // threads
    this.on("thread", e => e.body.reason === "exited" && this.gone.add(e.body.threadId));
    this.on("exited", e => { this.code = e.body.exitCode; });
    this.on("terminated", () => { this.over = true; this.wake(); });
  }
  wake() { this.watchers = this.watchers.filter(w => !w()); }
  until(is, what) {
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(new Error("not so within a minute: " + what + "\n" + this.text)), 60000);
      const watch = () => is() && (clearTimeout(late), resolve(), true);
      if (!watch()) this.watchers.push(watch);
    });
  }
  // all waits until these threads have stopped since the last call of go.
  all(...threads) { return this.until(() => threads.every(t => this.stops.has(t)), "threads " + threads + " stop"); }
  go(request) { this.stops.clear(); return request(); }
  // begin launches a recipe with breakpoints, and waits for the threads to stop.
  async begin(args, breakpoints, filters = []) {
    await this.start();
    const ready = this.waitForEvent("initialized");
    await Promise.all([this.launch(args), ready]);
    const placed = {};
    for (const [file, list] of Object.entries(breakpoints)) {
      const answer = await this.setBreakpointsRequest({ source: { path: path.join(dir, file) }, breakpoints: list });
      placed[file] = answer.body.breakpoints;
    }
    await this.setExceptionBreakpointsRequest({ filters });
    await this.configurationDoneRequest();
    return placed;
  }
  async top(thread) { return (await this.stackTraceRequest({ threadId: thread })).body.stackFrames; }
  async line(thread) { return (await this.top(thread))[0].line; }
  async eval(thread, expression) {
    const frame = (await this.top(thread))[0];
    return (await this.evaluateRequest({ expression, frameId: frame.id, context: "watch" })).body.result;
  }
  async command(thread, expression) {
    const frame = (await this.top(thread))[0];
    return (await this.evaluateRequest({ expression, frameId: frame.id, context: "repl" })).body.result;
  }
  async refused(request, want) {
    await assert.rejects(request, e => { assert.match(e.message, want); return true; });
  }
  ended() { return this.until(() => this.over, "the run ends"); }
  async finish() { await this.go(() => this.continueRequest({ threadId: 1 })); await this.ended(); }
}

const scenarios = {
  async steps(c) {
    const placed = await c.begin({ program: "train.star", nproc: 2, params: { steps: 4 } }, {
      "train.star": [{ line: 2 }, { line: 22, condition: "step == 2" }, { line: 20, condition: "opt.step()" }, { line: 20, condition: "step ==" }, { line: 20, condition: "stpe == 1" }, { line: 900 }],
      "lib/model.star": [{ line: 5, condition: "dist.rank() == 1" }], "none.star": [{ line: 1 }],
    });
    assert.equal(placed["train.star"][0].line, 3);
    assert.match(placed["train.star"][0].message, /moved to line 3/);
    assert.ok(placed["train.star"][1].verified);
    for (const [i, why] of [[2, /\.step may change something/], [3, /expression:1:/], [4, /nothing in the file has the name stpe/], [5, /no statement/]]) {
      assert.ok(!placed["train.star"][i].verified);
      assert.match(placed["train.star"][i].message, why);
    }
    assert.ok(!placed["none.star"][0].verified);
    const threads = (await c.threadsRequest()).body.threads;
    assert.deepEqual(threads.map(t => t.name), ["rank 0", "rank 1"]);

    await c.all(1, 2); // the load statement's line has been moved to the top level's first
    assert.equal(await c.line(1), 3);
    await c.go(() => c.continueRequest({ threadId: 1 }));
    await c.all(2); // in the loaded file, on rank 1 alone
    const frames = await c.top(2);
    assert.equal(frames[0].source.path, path.join(dir, "lib/model.star"));
    assert.deepEqual(frames.map(f => [f.name, f.line]), [["forward", 5], ["main", 17]]);
    const scopes = (await c.scopesRequest({ frameId: frames[1].id })).body.scopes;
    const locals = (await c.variablesRequest({ variablesReference: scopes[0].variablesReference })).body.variables;
    const step = locals.find(v => v.name === "step"), w = locals.find(v => v.name === "w"), kept = locals.find(v => v.name === "kept");
    assert.equal(step.value, "0");
    assert.match(w.value, /^Tensor float32\[4\] \[1 1 1 1\], min 1, max 1, digest [0-9a-f]{16}$/);
    assert.ok(kept.variablesReference > 0);
    assert.match((await c.variablesRequest({ variablesReference: kept.variablesReference })).body.variables[0].name, /losses/);
    const globals = (await c.variablesRequest({ variablesReference: scopes[1].variablesReference })).body.variables;
    assert.ok(globals.some(v => v.name === "params") && globals.some(v => v.name === "main"));
    await c.setBreakpointsRequest({ source: { path: path.join(dir, "lib/model.star") }, breakpoints: [] });

    await c.go(() => c.continueRequest({ threadId: 1 }));
    await c.all(1, 2);
    assert.equal(await c.line(1), 22);
    await c.scopesRequest({ frameId: (await c.top(2))[0].id }); // a number stands for one thing alone
    await c.refused(() => c.variablesRequest({ variablesReference: kept.variablesReference }), /has gone on since/);
    await c.refused(() => c.scopesRequest({ frameId: frames[1].id }), /has gone on since/);
    await c.refused(() => c.nextRequest({ threadId: 9 }), /no such thread/);
    await c.refused(() => c.launchRequest({ program: "train.star" }), /there is a session already/);
    assert.equal(await c.eval(1, "step + 1"), "3");
    await c.refused(() => c.eval(1, "opt.zero_grad()"), /may change something/);
    await c.refused(() => c.eval(1, "tensor.rand(3)"), /may change something/);
    await c.refused(() => c.eval(1, "nowhere"), /no value here/);
    await c.go(() => c.nextRequest({ threadId: 1, singleThread: true }));
    await c.all(1);
    assert.deepEqual([await c.line(1), await c.line(2)], [23, 22]);
    await c.go(() => c.stepBackRequest({ threadId: 1 }));
    await c.all(1, 2);
    assert.deepEqual([await c.line(1), await c.line(2)], [22, 21]);
    await c.go(() => c.stepBackRequest({ threadId: 1 }));
    await c.all(1, 2);
    assert.deepEqual([await c.line(1), await c.line(2)], [21, 20]);
    assert.match(c.text, /repeating the run from the beginning/);
    await c.go(() => c.reverseContinueRequest({ threadId: 2 }));
    await c.all(2);
    assert.equal(await c.line(2), 3); // nothing else was met
    await c.go(() => c.continueRequest({ threadId: 1 }));
    await c.until(() => /this is the present/.test(c.text) || c.stops.size === 2, "the present");
    for (let i = 0; i < 4 && !/this is the present/.test(c.text); i++) {
      await c.go(() => c.continueRequest({ threadId: 1 }));
      await c.until(() => /this is the present/.test(c.text) || c.stops.size > 0, "the present");
    }
    await c.until(() => /this is the present/.test(c.text), "the present");
    assert.deepEqual([await c.line(1), await c.line(2)], [23, 22]);
    await c.finish();
    assert.deepEqual([...c.gone].sort(), [1, 2]);
    assert.equal(c.code, 0);
  },

  async deadlock(c) {
    await c.begin({ program: "ring.star", nproc: 2 }, {});
    await c.all(1, 2);
    for (const t of [1, 2]) {
      assert.equal(c.stops.get(t).reason, "deadlock");
      assert.equal(await c.line(t), 6);
      assert.equal(await c.eval(t, "step"), "3");
    }
    assert.match(await c.command(1, "waits"), /rank 0: waits in dist.recv\(from 1, tag 0\) at ring.star:6:20\nrank 1: waits in dist.recv\(from 0, tag 0\)/);
    await c.finish();
    assert.match(c.text, /wait for each other in a circle/);
  },

  async nan(c) {
    await c.begin({ program: "spread.star", nproc: 2 }, { "spread.star": [{ line: 17 }] });
    await c.all(1, 2);
    assert.match(await c.command(1, "nonfinite"), /rank 1: the result of div is NaN, at spread.star:4, after update 7 \(go 2\)/);
    await c.go(() => c.command(1, "go 2"));
    await c.all(2);
    assert.equal(await c.line(2), 4);
    assert.match(await c.eval(2, "spread"), /\[0\]/);
    await c.disconnectRequest();
  },

  async nanstop(c) {
    await c.begin({ program: "spread.star", nproc: 2 }, {}, ["nonfinite"]);
    await c.all(2);
    assert.equal(c.stops.get(2).text, "the result of div is NaN");
    assert.equal(await c.line(2), 4);
    await c.disconnectRequest();
  },

  async drift(c) {
    await c.begin({ program: "drift.star", nproc: 2 }, { "drift.star": [{ line: 16 }] });
    await c.all(1, 2);
    assert.match(await c.command(1, "across b"), /they differ: rank 0 and rank 1, first at element \[0\]/);
    assert.match(await c.command(1, "differ b"), /b differs first between rank 0 and rank 1: at drift.star:15 \(go 1\)/);
    await c.go(() => c.command(1, "go 1"));
    await c.all(1, 2);
    assert.match(await c.command(1, "across b"), /they are equal/);
    assert.equal(await c.eval(1, "step"), "4");
    await c.disconnectRequest();
  },

  async attach(c) {
    await c.start();
    const ready = c.waitForEvent("initialized");
    await c.initializeRequest();
    await Promise.all([c.attachRequest({ run: "last" }), ready]);
    await c.configurationDoneRequest();
    await c.go(() => c.pauseRequest({ threadId: 1 }));
    await c.all(1, 2);
    const placed = (await c.setBreakpointsRequest({ source: { path: path.join(dir, "long.star") }, breakpoints: [{ line: 5, condition: "step % 50 == 0" }, { line: 3 }] })).body.breakpoints;
    assert.deepEqual(placed.map(b => b.line), [5, 4]); // n = 0 has no step with a position
    await c.setBreakpointsRequest({ source: { path: path.join(dir, "long.star") }, breakpoints: [{ line: 5, condition: "step % 50 == 0" }] });
    await c.go(() => c.continueRequest({ threadId: 1 }));
    await c.all(1, 2);
    const step = Number(await c.eval(1, "step"));
    assert.equal(step % 50, 0);
    const w = await c.eval(1, "w");
    await c.go(() => c.stepBackRequest({ threadId: 1 }));
    await c.all(1, 2);
    assert.equal(await c.line(1), 4);
    await c.go(() => c.nextRequest({ threadId: 1 }));
    await c.all(1, 2);
    assert.deepEqual([Number(await c.eval(1, "step")), await c.eval(1, "w")], [step, w]);
    await c.disconnectRequest();
  },

  async changed(c) {
    await c.start();
    const ready = c.waitForEvent("initialized");
    await c.initializeRequest();
    await Promise.all([c.attachRequest({ run: "last" }), ready]);
    await c.configurationDoneRequest();
    fs.writeFileSync("long.star", "# another\n" + fs.readFileSync("long.star"));
    await c.go(() => c.pauseRequest({ threadId: 1 }));
    await c.all(1, 2);
    const frame = (await c.top(1))[0];
    assert.ok(frame.source.sourceReference > 0);
    assert.match(c.text, /long.star has changed since the run began/);
    const text = (await c.sourceRequest({ sourceReference: frame.source.sourceReference })).body.content;
    assert.ok(text.startsWith("def main"));
    await c.disconnectRequest();
  },

  // The rank's process is killed while it stands at a breakpoint.
  async dies(c) {
    await c.begin({ program: "spread.star", nproc: 2 }, { "spread.star": [{ line: 9 }] });
    await c.all(1, 2);
    const worker = child.execSync("pgrep -f 'worker rank 1' -P " + c._adapterProcess.pid).toString().trim();
    process.kill(Number(worker), "SIGKILL");
    await c.ended();
    assert.match(c.text, /rank 1: .*killed/);
    assert.equal(c.code, 3);
  },

  // The step at which a recipe has failed is shown, and its past; there is no way on from there.
  async fails(c) {
    await c.begin({ program: "scale.star", nproc: 2 }, {}, ["error"]);
    await c.all(1, 2);
    assert.equal(c.stops.get(2).reason, "exception");
    assert.match(c.stops.get(2).text, /scale.star:2:18: floating-point division by zero/);
    assert.deepEqual((await c.top(2)).map(f => [f.name, f.line]), [["scale_of", 2], ["main", 8]]);
    assert.equal(await c.eval(2, "name"), '"dog"');
    assert.ok(!c.over);
    await c.go(() => c.stepBackRequest({ threadId: 2 }));
    await c.all(1, 2);
    await c.go(() => c.nextRequest({ threadId: 2 }));
    await c.all(1, 2);
    assert.equal(await c.line(2), 2);
    await c.go(() => c.continueRequest({ threadId: 2 }));
    await c.ended();
    assert.equal(c.code, 1);
  },

  async failure(c) {
    await c.begin({ program: "scale.star", nproc: 2 }, {});
    await c.ended();
    assert.match(c.text, /floating-point division by zero/);
    assert.equal(c.code, 1);
  },

  // The editor goes away while ranks stand at a breakpoint.
  async away(c) {
    await c.begin({ program: "spread.star", nproc: 2 }, { "spread.star": [{ line: 9 }] });
    await c.all(1, 2);
    const gone = new Promise(resolve => c._adapterProcess.on("exit", resolve));
    c._adapterProcess.stdin.end();
    await gone;
  },

  async entry(c) {
    await c.begin({ program: "spread.star", nproc: 2, stopOnEntry: true }, {});
    await c.all(1, 2);
    assert.equal(await c.line(1), 7);
    await c.command(1, "break collective all_reduce");
    await c.go(() => c.continueRequest({ threadId: 1 }));
    await c.all(1, 2);
    assert.equal(await c.line(1), 14); // dist.sync_grad
    for (const line of [14, 13]) { // to the beginning of the call's statement, and to the one before
      await c.go(() => c.stepBackRequest({ threadId: 1, singleThread: true }));
      await c.all(1, 2);
      assert.deepEqual([await c.line(1), await c.line(2)], [line, 14]);
    }
    await c.go(() => c.continueRequest({ threadId: 1 }));
    await c.until(() => /this is the present/.test(c.text), "the present");
    await c.go(() => c.stepInRequest({ threadId: 1 }));
    await c.all(1, 2);
    assert.equal(await c.line(1), 15);
    // A step back that fails leaves the ranks where they stand, and says so.
    await c.go(() => c.reverseContinueRequest({ threadId: 1 }));
    await c.all(1);
    for (let i = 0; i < 20 && !/is at the beginning/.test(c.text); i++) {
      await c.go(() => c.stepBackRequest({ threadId: 1, singleThread: true }));
      await c.all(1);
    }
    assert.match(c.text, /rank 0 is at the beginning/);
    await c.refused(() => c.customRequest("gotoTargets", {}), /no gotoTargets|gotoTargets/);
    await c.refused(() => c.customRequest("nonsense", {}), /nonsense/);
    await c.disconnectRequest();
  },
};

const c = new Client();
scenarios[process.argv[2]](c).then(() => process.exit(0), e => {
  console.error(e.stack || e);
  if (c._adapterProcess) c._adapterProcess.kill("SIGTERM");
  process.exit(1);
});
