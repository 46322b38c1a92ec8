package query

import (
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"drun/history"
	"drun/history/records"
)

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// recorded is a history of four runs: the third has no acc and a loss that is NaN, the fourth nothing.
func recorded(t testing.TB) *history.DB {
	t.Helper()
	home := t.TempDir()
	db, err := history.Open(home)
	ok(t, err)
	t.Cleanup(func() { db.Close() })
	for i, params := range [][]history.Param{
		{{Name: "lr", Value: 0.1}, {Name: "batch", Value: 64}, {Name: "opt", Value: "sgd"}, {Name: "warm", Value: true}, {Name: "in", Value: nil}},
		{{Name: "lr", Value: 0.01}, {Name: "batch", Value: 128}, {Name: "opt", Value: "adam"}, {Name: "warm", Value: false}},
		{{Name: "lr", Value: 1.0}, {Name: "big", Value: new(big.Int).Lsh(big.NewInt(1), 70)}, {Name: "api_key", Value: history.Secret{}}},
		{},
	} {
		r, err := db.Begin(history.RunInfo{Name: fmt.Sprintf("run-%d", i+1), Recipe: "digits.star", WorldSize: i + 1, Backend: "shm", Seed: int64(10 * i),
			Started: time.Date(2026, 1, i+1, 0, 0, 0, 0, time.UTC)})
		ok(t, err)
		points := map[int][]records.Point{
			0: {{Name: "acc", Value: 0.9}, {Name: "acc", Value: 0.97}, {Name: "val/loss", Value: 2}, {Name: "loss", Value: 0.5}},
			1: {{Name: "acc", Value: 0.99}, {Name: "acc", Value: 0.91}, {Name: "loss", Value: math.Inf(1)}},
			2: {{Name: "loss", Value: math.NaN()}},
		}[i]
		ok(t, r.Write(&history.Batch{Params: params, Batch: records.Batch{Points: points}}))
		if i < 2 {
			ok(t, r.Tag("base", fmt.Sprintf("quote\"%d\n", i)))
		}
		if i < 3 {
			ok(t, r.Write(&history.Batch{End: &history.End{Status: history.Done, Seconds: float64(i)}}))
		}
	}
	return db
}

func choose(db *history.DB, where string, sort ...string) ([]int64, []string, error) {
	e, err := Parse("--where", where)
	if err != nil {
		return nil, nil, err
	}
	var keys []Key
	for _, text := range sort {
		k, err := ParseKey(text)
		if err != nil {
			return nil, nil, err
		}
		keys = append(keys, k)
	}
	return Choose(db, false, []*Expr{e}, keys)
}

func TestWhere(t *testing.T) {
	db := recorded(t)
	for where, want := range map[string]string{
		"True":            "[4 3 2 1]",
		"params.lr < 0.1": "[2]",
		"params.lr <= 0.1 and metrics.acc.last > 0.95":  "[1]",
		"metrics.acc.max > 0.95":                        "[2 1]",
		"metrics.acc.min > 0.9 and metrics.acc.count":   "[2]",
		"metrics.acc.first == 0.9":                      "[1]",
		`metrics["val/loss"].last == 2`:                 "[1]",
		`params["lr"] == 1`:                             "[3]",
		`"acc" in metrics`:                              "[2 1]",
		`"lr" not in params`:                            "[4]",
		`params.opt == "adam" or id == 4`:               "[4 2]",
		`id == 4 or params.opt == "adam"`:               "[4 2]",
		`params.warm`:                                   "[1]",
		`not params.warm`:                               "[2]", // 3 and 4 have none
		`not (params.warm or params.lr == 0.01)`:        "[]",
		`not (params.warm and params.nothing)`:          "[2]", // false and unknown is false
		`not not params.warm`:                           "[1]",
		`params["in"] == None`:                          "[1]",
		`"base" in tags and len(tags) == 2`:             "[2 1]",
		`world_size > 2 and backend == "shm"`:           "[4 3]",
		`seed == 10 and name == "run-2"`:                "[2]",
		`recipe.endswith("digits.star")`:                "[4 3 2 1]",
		`status == "done" and seconds >= 1`:             "[3 2]",
		`started >= "2026-01-03"`:                       "[4 3]",
		`params.big == 1180591620717411303424`:          "[3]",
		`params.api_key == "[redacted]"`:                "[]",
		`metrics.loss.last > 0`:                         "[2 1]", // NaN is not above 0
		`any([x > 0 for x in [metrics.loss.last]])`:     "[2 1]",
		`metrics.loss.last == metrics.loss.last`:        "[2 1]",
		`metrics.loss.last != metrics.loss.last`:        "[3]",
		`metrics.loss.last == float("inf")`:             "[2]",
		`min(params.lr, metrics.acc.last) == params.lr`: "[2 1]",
		`(1 if params.lr < 0.5 else 0) == 1`:            "[2 1]",
		`[v for v in [params.lr] if v < 0.05]`:          "[2]",
		"params.lr <\n0.1":                              "[2]",
		`parent == 1`:                                   "[]",
	} {
		ids, _, err := choose(db, where)
		if err != nil || fmt.Sprint(ids) != want {
			t.Errorf("%s: %v, %v, want %s", where, ids, err, want)
		}
	}
}

func TestSort(t *testing.T) {
	db := recorded(t)
	for sort, want := range map[string]string{
		"id": "[1 2 3 4]", "-id": "[4 3 2 1]",
		"metrics.loss.last":  "[1 2 3 4]", // NaN, then none
		"-metrics.loss.last": "[2 1 3 4]",
		"params.opt":         "[2 1 4 3]", // equal: newest first
		"-params.lr":         "[3 1 2 4]",
		"-name":              "[4 3 2 1]",
		"-params.big":        "[3 4 2 1]",
	} {
		if ids, _, err := choose(db, "True", sort); err != nil || fmt.Sprint(ids) != want {
			t.Errorf("--sort %s: %v, %v, want %s", sort, ids, err, want)
		}
	}
	if ids, _, err := choose(db, "True", "len(tags)", "-id"); err != nil || fmt.Sprint(ids) != "[4 3 2 1]" {
		t.Errorf("two keys: %v, %v", ids, err)
	}
	if _, err := ParseKey("-params.lr + id"); err == nil || !strings.Contains(err.Error(), "write -(params.lr + id)") {
		t.Error(err)
	}
	if ids, _, err := choose(db, "True", "-(id + 1)"); err != nil || fmt.Sprint(ids) != "[4 3 2 1]" {
		t.Errorf("-(…): %v, %v", ids, err)
	}
	tagged, err := Tagged("quote\"1\n")
	ok(t, err)
	if ids, _, err := Choose(db, false, []*Expr{tagged}, nil); err != nil || fmt.Sprint(ids) != "[2]" {
		t.Errorf("tagged: %v, %v", ids, err)
	}
}

// Among equals the newest runs come first, however many there are.
func TestSortIsStable(t *testing.T) {
	db, err := history.Open(t.TempDir())
	ok(t, err)
	defer db.Close()
	const sizes = 7
	newest := map[int][]int64{} // by world size
	for i := range 60 {
		size := 1 + i*5%sizes
		r, err := db.Begin(history.RunInfo{Name: fmt.Sprintf("run-%d", i), Recipe: "a.star", WorldSize: size, Backend: "shm", Started: time.Date(2026, 1, 1, 0, i, 0, 0, time.UTC)})
		ok(t, err)
		newest[size] = slices.Insert(newest[size], 0, r.ID)
	}
	var up, down []int64
	for size := 1; size <= sizes; size++ {
		up, down = append(up, newest[size]...), slices.Concat(newest[size], down)
	}
	for sort, want := range map[string][]int64{"world_size": up, "-world_size": down} {
		if ids, _, err := choose(db, "True", sort); err != nil || !slices.Equal(ids, want) {
			t.Errorf("--sort %s: %v, %v, want %v", sort, ids, err, want)
		}
	}
}

func TestMistakes(t *testing.T) {
	db := recorded(t)
	for where, want := range map[string]string{
		"":                              "the expression is empty",
		"params.lr <":                   "column 12: got end of file, want primary expression\n    params.lr <\n               ^",
		"metric.acc.last > 1":           "column 1: there is no name metric: did you mean metrics?",
		"params.lr < 1 and lr > 2":      "column 19: there is no name lr: a parameter is params.lr, a metric metrics.lr.last",
		"statsu == 'done'":              "did you mean status?",
		"metrics.acc > 1":               "column 1: metrics.acc is a metric: say metrics.acc.last",
		"metrics.acc.lats > 1":          "column 13: a metric has no .lats, but .last .min .max .first .count: did you mean .last?",
		"1 < name":                      "column 3: int cannot be compared with string (<)",
		"name > params":                 "column 6: string cannot be compared with params (run 4)",
		"0.9 <= metrics.acc":            "column 8: metrics.acc is a metric: say metrics.acc.last",
		`id > 1 and 1 < metrics["a/b"]`: `column 16: metrics["a/b"] is a metric: say metrics["a/b"].last`,
		"params.lr == 'x' or id < 'y'":  "column 24: int cannot be compared with string",
		"metrics.acc":                   "a condition is true or false, not a metric",
		"id, name":                      "want one condition",
		"1 // 0 == 1":                   "column 3: floored division by zero",
		"metrics.val/loss.last < 1":     `there is no name loss: write metrics["val/loss"] for a name with other characters than letters, digits and _`,
		"params.lr-top > 1":             `there is no name top: write params["lr-top"] for`,
		"any(range(1 << 60))":           "there is no name range",
		fmt.Sprintf("[1 for a in %[1]q.elems() for b in %[1]q.elems()]", strings.Repeat("x", 400)): "more than 100000 steps",
		// What would fill the memory, or take for ever in a single step.
		`"x" * 1000000000 == name`:                                   "column 5: string * int is for numbers",
		`[[]] * 1000000000 == tags`:                                  "column 6: list * int is for numbers",
		`"%1000000000d" % id == name`:                                "column 16: string % int is for numbers",
		`[x for x in [1 << 500] for x in [x*x] for x in [x*x]] == 1`: "an expression has at most 2 loops",
		strings.Repeat("(1<<500)*", 1000) + "1 > 0":                  "the number is too large",
		`(lambda x: [x, x])(1) == 1`:                                 "column 2: an expression has no lambda",
		`"".join([name, name]) == name`:                              "column 4: an expression has no .join",
		`name.replace("", name) == name`:                             "an expression has no .replace",
		`"{}".format(name) == name`:                                  "an expression has no .format",
		`str([str(['"'])]) == name`:                                  "str takes a number, a text, a bool or None, not a list",
		"id == " + strings.Repeat("1", 10_000):                       "more than 10000",
		"name.nothing":                                               "column 5: string has no .nothing field or method",
		"params[1] == 2":                                             "params[…] wants a name, not a int",
		"[params for x in tags] < 3":                                 "cannot be compared",
		"x = 3":                                                      "one = sets a value; equal is ==",
		"id > 1 && id < 3":                                           "&& is written and",
		"id > 1 || id < 3":                                           "|| is written or",
		"status == done":                                             `a text has quotes, as in status == "done"`,
		"print(1)":                                                   "there is no name print",
		strings.Repeat("(", 9_000):                                   "excessive nesting",
		"\"\x1b\" + 1 == 2":                                          "unknown binary op: string + int",
	} {
		_, _, err := choose(db, where)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60s: %v\nwant %s", where, err, want)
		}
	}
	for where, want := range map[string]string{
		"params.bach > 1 or params.bach > 2": `[no run has a parameter "bach": did you mean "batch"?]`,
		"metrics.accc.last > 1":              `[no run has a metric "accc": did you mean "acc"?]`,
		`params["batch"] > 1`:                "[]",
		`"zzzzzz" in metrics`:                `[no run has a metric "zzzzzz"]`,
	} {
		if _, unknown, err := choose(db, where); err != nil || fmt.Sprint(unknown) != want {
			t.Errorf("%s: %s, %v, want %s", where, unknown, err, want)
		}
	}
}

func TestTable(t *testing.T) {
	db := recorded(t)
	columns, err := ParseList("--columns", `id, params.lr , max(params.batch, 100), tags[:1], metrics.acc.last * 2, "a, b", (id, 3)[1]`)
	ok(t, err)
	table, err := Table(db, []int64{3, 1, 99}, columns)
	ok(t, err)
	want := `[id|params.lr|max(params.batch, 100)|tags[:1]|metrics.acc.last * 2|"a, b"|(id, 3)[1]] [[3 1.0 <nil> [] <nil> a, b 3] [1 0.1 100 [base] 1.94 a, b 3]]`
	if got := fmt.Sprintf("[%s] %v", strings.Join(table.Columns, "|"), table.Rows); strings.Replace(got, "[3 1 ", "[3 1.0 ", 1) != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// Only what the expressions mention is read.
func TestLoadsWhatIsMentioned(t *testing.T) {
	db := recorded(t)
	for text, want := range map[string]string{
		"params.lr < 1":             "map[lr:0.1] [] []",
		"metrics.acc.last":          "map[] [acc] []",
		`len(tags) + id`:            "map[] [] [base quote\"0\n]",
		`[params[p] for p in tags]`: "map[batch:64 in:<nil> lr:0.1 opt:sgd warm:true] [] [base quote\"0\n]",
	} {
		list, err := ParseList("--columns", text)
		ok(t, err)
		runs, err := Load(db, history.Selection{IDs: []int64{1}}, list...)
		ok(t, err)
		names := []string{}
		for name := range runs[0].Metrics {
			names = append(names, name)
		}
		slices.Sort(names)
		if got := fmt.Sprint(map[string]any(runs[0].Params), " ", names, " ", runs[0].Tags); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}
