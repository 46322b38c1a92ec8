package history

import (
	"context"
	"database/sql"
	"fmt"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"drun/history/records"
	"drun/internal/exit"
	"drun/internal/sqldb"
)

// describe is a point in full.
func describe(p records.Point) string {
	return fmt.Sprintf("%q %d %d %x %v %s", p.Name, p.Step, p.Rank, math.Float64bits(p.Value), p.Exact, formatTime(p.Time))
}

func describeAll(points []records.Point) []string {
	all := []string{}
	for _, p := range points {
		all = append(all, describe(p))
	}
	return all
}

// queried are the points of a view, as SQL shows them.
func queried(t *testing.T, db *DB, view string, run int64) []string {
	t.Helper()
	all := []string{}
	ok(t, db.read(func(rows *sql.Rows) error {
		var p records.Point
		var value sql.NullFloat64
		var bits sql.NullInt64
		var kind string
		err := rows.Scan(&p.Name, &p.Step, &p.Rank, &value, &bits, &p.Exact, timeColumn{&p.Time}, &kind)
		if p.Value = decode(value, bits); kind != "real" && !math.IsNaN(p.Value) {
			t.Errorf("%v is %s", p.Value, kind)
		}
		all = append(all, describe(p))
		return err
	}, "SELECT name, step, rank, value, bits, exact, time, typeof(value) FROM "+view+" WHERE run = ? ORDER BY seq", run))
	return all
}

func same(t *testing.T, what string, got, want []string) {
	t.Helper()
	if slices.Equal(got, want) {
		return
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || got[i] != want[i] {
			t.Fatalf("%s: %d points, want %d; from number %d on they are\n%s\nwant\n%s", what, len(got), len(want), i,
				strings.Join(got[min(i, len(got)):min(i+3, len(got))], "\n"), strings.Join(want[min(i, len(want)):min(i+3, len(want))], "\n"))
		}
	}
}

// wildPoint is one of any kind: most continue what came before, some have nothing in common with it.
func wildPoint(random *rand.Rand, i int, start time.Time) records.Point {
	pick := func(list []float64) float64 { return list[random.IntN(len(list))] }
	p := records.Point{Name: fmt.Sprint("m", random.IntN(4)), Step: int64(i), Rank: random.IntN(2), Value: random.NormFloat64(), Exact: true, Time: start.Add(time.Duration(i) * time.Second)}
	if random.IntN(8) == 0 {
		p.Value = pick([]float64{math.NaN(), math.Float64frombits(0xfff8000000000123), math.Inf(1), math.Inf(-1), math.Copysign(0, -1), 0, 1, 1 << 53, 5e-324, -math.MaxFloat64})
	}
	if random.IntN(20) == 0 {
		p.Step = int64(random.Uint64())
	}
	if random.IntN(40) == 0 {
		p.Step = []int64{math.MinInt64, math.MaxInt64, -1, 0}[random.IntN(4)]
	}
	if random.IntN(40) == 0 {
		p.Name = []string{"", "a\x00b", "quote'\"`", "\xff\xfe", "\x1b[31m", "😀", strings.Repeat("x", 5000)}[random.IntN(7)]
	}
	if random.IntN(40) == 0 {
		p.Rank, p.Exact = math.MaxInt32, false
	}
	if random.IntN(40) == 0 {
		p.Time = []time.Time{{}, time.Unix(0, 0), time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC)}[random.IntN(3)]
	}
	return p
}

// wildBatches are points of any kind in batches of any size.
func wildBatches(random *rand.Rand, n int) (batches [][]records.Point) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 678901000, time.UTC)
	for i := 0; i < n; {
		batch := []records.Point{}
		for range 1 + random.IntN(1+random.IntN(100)) {
			batch = append(batch, wildPoint(random, i, start))
			i++
		}
		batches = append(batches, batch)
	}
	return batches
}

// What is recorded is read again, in order and to the bit, by drun and by SQL.
func TestBlocksKeepEveryPoint(t *testing.T) {
	if testing.Short() {
		t.Skip("it computes on one goroutine")
	}
	seed := testSeed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	home := t.TempDir()
	db := open(t, home)
	want := map[int64][]string{}
	summaries := map[int64]map[string]*MetricSummary{}
	for range 3 {
		r := begin(t, db, RunInfo{})
		summaries[r.ID] = map[string]*MetricSummary{}
		for _, batch := range wildBatches(random, 2000) {
			ok(t, r.Write(&Batch{Batch: records.Batch{Points: batch}}))
			want[r.ID] = append(want[r.ID], describeAll(batch)...)
		}
	}
	ro := reader(t, home)
	for id, points := range want {
		got, err := ro.Points(id)
		ok(t, err)
		same(t, "Points", describeAll(got), points)
		same(t, "metrics", queried(t, ro, "metrics", id), points)
		var some []string
		for _, p := range points {
			if strings.HasPrefix(p, `"m1" `) || strings.HasPrefix(p, `"m3" `) {
				some = append(some, p)
			}
		}
		got, err = ro.Points(id, "m3", "m1")
		ok(t, err)
		same(t, "two metrics", describeAll(got), some)
	}
	var numbers, first, last int64
	ok(t, ro.read(func(rows *sql.Rows) error { return rows.Scan(&numbers, &first, &last) }, "SELECT count(DISTINCT seq), min(seq), max(seq) FROM metrics WHERE run = 1"))
	if n := int64(len(want[1])); numbers != n || first != 1 || last != n {
		t.Errorf("%d numbers from %d to %d, want 1 to %d", numbers, first, last, n)
	}
}

// Superseded points leave the metrics, whichever they are, and nothing else does.
func TestSupersededAtRandom(t *testing.T) {
	if testing.Short() {
		t.Skip("it computes on one goroutine")
	}
	seed := testSeed(t)
	for round := range 20 {
		random := rand.New(rand.NewPCG(seed, uint64(round)))
		home := t.TempDir()
		r := begin(t, open(t, home), RunInfo{})
		type row struct {
			records.Point
			superseded bool
		}
		var model []row
		for attempt, batches := 1, wildBatches(random, 300); len(batches) > 0; batches = batches[1:] {
			for _, p := range batches[0] {
				model = append(model, row{p, false})
			}
			ok(t, r.Write(&Batch{Batch: records.Batch{Points: batches[0]}}))
			n := len(model)
			switch random.IntN(4) {
			case 0:
				after := random.IntN(n + 1)
				before := after + random.IntN(n+1-after)
				ok(t, r.Write(&Batch{Supersedes: []Supersede{{attempt, nil, int64(after), int64(before)}}}))
				for i := after; i < before; i++ {
					model[i].superseded = true
				}
				attempt++
			case 1:
				after, rank := random.IntN(n+1), random.IntN(2)
				older := random.IntN(after + 1)
				ok(t, r.Write(&Batch{Repeats: []Repeat{{rank, int64(older), int64(after), int64(n)}}}))
				for i := range older {
					for _, later := range model[after:] {
						p := &model[i]
						if !later.superseded && later.Rank == rank && p.Rank == rank && p.Name == later.Name && p.Step == later.Step {
							p.superseded = true
						}
					}
				}
			}
		}
		var kinds [2][]string
		want, lowest := map[string]*MetricSummary{}, map[string]int{}
		for _, p := range model {
			kind := 0
			if p.superseded {
				kind = 1
			} else if s := want[p.Name]; s != nil {
				if s.add(p.Value); p.Rank < lowest[p.Name] {
					s.First, lowest[p.Name] = records.Float(p.Value), p.Rank
				}
				if p.Rank == lowest[p.Name] {
					s.Last = records.Float(p.Value)
				}
			} else {
				v := records.Float(p.Value)
				want[p.Name], lowest[p.Name] = &MetricSummary{v, v, v, v, 1}, p.Rank
			}
			kinds[kind] = append(kinds[kind], describe(p.Point))
		}
		ro := reader(t, home)
		same(t, "metrics", queried(t, ro, "metrics", r.ID), kinds[0])
		same(t, "superseded_metrics", queried(t, ro, "superseded_metrics", r.ID), kinds[1])
		points, err := ro.Points(r.ID)
		ok(t, err)
		same(t, "Points", describeAll(points), kinds[0])
		d, err := ro.Get(r.ID)
		ok(t, err)
		if len(d.Metrics) != len(want) {
			t.Errorf("%d summaries, want %d", len(d.Metrics), len(want))
		}
		for name, s := range want {
			plain := MetricSummary{s.First + 0, s.Last + 0, s.Min + 0, s.Max + 0, s.Count} // without -0.0, which a summary does not tell from 0
			if got := d.Metrics[name]; fmt.Sprint(got) != fmt.Sprint(plain) {
				t.Errorf("%.20q: %v, want %v", name, got, plain)
			}
		}
		next, _, err := blocks{ro.sql, r.ID}.next()
		if err != nil || next != int64(len(model))+1 {
			t.Errorf("the next point is number %d, %v; want %d", next, err, len(model)+1)
		}
	}
}

// oldHistory makes a history of an earlier drun, with a connection to fill it.
func oldHistory(t *testing.T, home string, version int) *sql.DB {
	t.Helper()
	f := file(home)
	old := fstest.MapFS{}
	names, err := fs.Glob(f.Migrations, "*.sql")
	ok(t, err)
	for _, name := range names[:version] {
		text, err := fs.ReadFile(f.Migrations, name)
		ok(t, err)
		old[name] = &fstest.MapFile{Data: text}
	}
	f.Migrations = old
	db, err := sqldb.Open(f)
	ok(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

// Histories of every earlier drun in which points were rows keep all of them.
func TestPointsOfOlderHistories(t *testing.T) {
	if testing.Short() {
		t.Skip("it computes on one goroutine")
	}
	seed := testSeed(t)
	random := rand.New(rand.NewPCG(seed, 0))
	for version := 1; version <= 7; version++ {
		home := t.TempDir()
		old := oldHistory(t, home, version)
		tables := []string{"metrics"}
		if version >= 6 {
			tables = append(tables, "superseded_metrics")
		}
		want := map[string][]string{}
		summaries := 0
		for run := 1; run <= 2; run++ {
			_, err := old.Exec(`INSERT INTO runs (id, uid, name, recipe, status, world_size, backend, seed, threads, started, version, host, pid, dir, command)
				VALUES (?1, ?1, ?1, 'a.star', 'done', 1, 'shm', 0, 1, '2026-01-02T03:04:05.000000Z', 'v1', 'h', 1, '/', '[]')`, run)
			ok(t, err)
			seen := map[string]bool{}
			for i, p := range slices.Concat(wildBatches(random, 500)...) {
				table := tables[random.IntN(len(tables))]
				value, bits := encode(p.Value)
				_, err := old.Exec("INSERT INTO "+table+" VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", run, i+1, p.Name, p.Step, p.Rank, value, bits, p.Exact, formatTime(p.Time))
				ok(t, err)
				key := fmt.Sprint(table, run)
				want[key] = append(want[key], describe(p))
				if table == "metrics" && !seen[p.Name] {
					seen[p.Name] = true
					summaries++
					_, err := old.Exec("INSERT INTO metric_summaries VALUES (?, ?, ?, NULL, 3, 4, 5)", run, p.Name, value)
					ok(t, err)
				}
			}
		}
		before, err := allRows(old, "SELECT * FROM metric_summaries ORDER BY run, name")
		ok(t, err)
		ok(t, old.Close())
		db := reader(t, home) // which updates the file
		for run := int64(1); run <= 2; run++ {
			for _, table := range tables {
				same(t, fmt.Sprintf("version %d, %s", version, table), queried(t, db, table, run), want[fmt.Sprint(table, run)])
			}
			points, err := db.Points(run)
			ok(t, err)
			same(t, "Points", describeAll(points), want[fmt.Sprint("metrics", run)])
		}
		after, err := allRows(db.sql, "SELECT * FROM metric_summaries ORDER BY run, name")
		ok(t, err)
		if len(before) != summaries || !slices.Equal(before, after) {
			t.Errorf("version %d: the summaries became %d, and were %d", version, len(after), len(before))
		}
		table, err := db.Query(context.Background(), "SELECT name FROM sqlite_master WHERE name LIKE '%as_rows' OR name LIKE '%with_names'")
		if err != nil || len(table.Rows) > 0 {
			t.Errorf("version %d: %v, %v", version, table, err)
		}
	}
}

// decode is the value of a row's columns.
func decode(value sql.NullFloat64, bits sql.NullInt64) float64 {
	switch {
	case bits.Valid:
		return math.Float64frombits(uint64(bits.Int64))
	case !value.Valid:
		return math.NaN()
	}
	return value.Float64
}

func allRows(db *sql.DB, query string) (all []string, err error) {
	err = sqldb.Each(db, func(rows *sql.Rows) error {
		names, err := rows.Columns()
		row, into := make([]any, len(names)), make([]any, len(names))
		for i := range row {
			into[i] = &row[i]
		}
		if err == nil {
			err = rows.Scan(into...)
		}
		all = append(all, fmt.Sprint(row))
		return err
	}, query)
	return all, err
}

// A block that is damaged is an error, never a crash or a wrong point.
func TestDamagedBlocks(t *testing.T) {
	for _, change := range []string{"metrics = 0", "ranks = -1", "steps = 'x'", "p3 = 'x'", "p3 = -9", "v2 = 'x'", "bits = '{'", "bits = '[1]'", "time = NULL"} {
		home := t.TempDir()
		db := open(t, home)
		r := begin(t, db, RunInfo{})
		points := []records.Point{}
		for i := range 10 {
			points = append(points, records.Point{Name: "m", Step: int64(i), Value: math.NaN(), Time: time.Now()})
		}
		ok(t, r.Write(&Batch{Batch: records.Batch{Points: points}}))
		if _, err := db.sql.Exec("UPDATE metric_blocks SET " + change); err != nil {
			if change == "time = NULL" {
				continue // SQLite refuses it
			}
			t.Fatal(err)
		}
		if got, err := db.Points(r.ID); err == nil || exit.CodeOf(err) != exit.Storage || !strings.Contains(err.Error(), "history.db is damaged") {
			t.Errorf("%s: %d points, %v", change, len(got), err)
		}
	}
}

// testSeed is that of a randomised test; DRUN_TEST_SEED repeats it.
func testSeed(t *testing.T) uint64 {
	seed := rand.Uint64() >> 32
	if s := os.Getenv("DRUN_TEST_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		ok(t, err)
	}
	t.Logf("DRUN_TEST_SEED=%d", seed)
	return seed
}
