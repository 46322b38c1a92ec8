package sweep

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
)

func axes(t *testing.T, texts ...string) (list []Axis) {
	t.Helper()
	for _, text := range texts {
		a, err := ParseAxis(text)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, a)
	}
	return list
}

func TestGrid(t *testing.T) {
	cells, err := Grid(axes(t, "lr=0.1,0.01", "batch=32", `text=a\,b,c\..d,\\`))
	want := `[lr=0.1 batch=32 text=a,b lr=0.1 batch=32 text=c..d lr=0.1 batch=32 text=\ lr=0.01 batch=32 text=a,b lr=0.01 batch=32 text=c..d lr=0.01 batch=32 text=\]`
	if err != nil || fmt.Sprint(cells) != want {
		t.Errorf("%v, %v", cells, err)
	}
	cells, err = Grid(axes(t, `w=[64,64],[128],[],["a..b,]",'c']`, "x=[1,[2]x,3"))
	if want := "[w=[64,64] x=[1 w=[64,64] x=[2]x w=[64,64] x=3 w=[128] x=[1 "; err != nil || len(cells) != 12 || !strings.HasPrefix(fmt.Sprint(cells), want) || cells[11][0] != `w=["a..b,]",'c']` {
		t.Errorf("lists: %v, %v", cells, err)
	}
	if cells, err := Grid(nil); err != nil || len(cells) != 1 || len(cells[0]) != 0 {
		t.Errorf("no axes: %v, %v", cells, err)
	}
	if cells, err := Grid(axes(t, "text=", "x==,")); err != nil || fmt.Sprintf("%q", cells) != `["text= x==" "text= x="]` {
		t.Errorf("empty: %q, %v", cells, err)
	}
}

func TestMistakenAxes(t *testing.T) {
	for text, want := range map[string]string{
		"lr": "want name=value", "=3": "want name=value", "lr=1,2,1": "there twice", "lr=1..0": "from a smaller", "lr=1..1": "from a smaller",
		"lr=0..1:log": "above 0", "lr=a..b": "are numbers", "lr=1..2:lin": `not "lin"`, "lr=..1": "are numbers", "lr=1..NaN": "are numbers",
		"lr=-1e308..1e308": "too large", "n=0..9223372036854775807": "too large",
	} {
		if _, err := ParseAxis(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	many := make([]string, 401)
	for i := range many {
		many[i] = strconv.Itoa(i)
	}
	list := strings.Join(many, ",")
	for want, a := range map[string][]Axis{"is a range": axes(t, "lr=1..2"), "there twice": axes(t, "a=1", "a=2"), "more than 100000": axes(t, "a="+list, "b="+list)} {
		if _, err := Grid(a); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if _, err := Random(nil, 0, 1); err == nil {
		t.Error("no draws")
	}
}

// What is drawn lies in its range, and a narrow range gives more than one value.
func TestNarrowRanges(t *testing.T) {
	for _, text := range []string{"x=1000000.5..1000001.5", "x=0.12345678..0.12345679", "x=-1e300..-9.9999999e299", "x=5e-324..1e-323", "x=9007199254740990..9007199254740992",
		"x=1.00000011..1.00000012:log", "x=1..1e9", "x=-3..3"} {
		a, err := ParseAxis(text)
		if err != nil {
			t.Fatal(err)
		}
		cells, err := Random([]Axis{a}, 2, 1)
		if err != nil || len(cells) != 2 {
			t.Errorf("%s: %v, %v", text, cells, err)
		}
		for _, c := range cells {
			v, err := strconv.ParseFloat(strings.TrimPrefix(c[0], "x="), 64)
			if err != nil || v < a.low || v > a.high {
				t.Errorf("%s: drew %s, %v", text, c, err)
			}
		}
	}
	if _, err := ParseAxis("x=9007199254740993..9007199254740995"); err == nil {
		t.Error("whole numbers that a float64 does not hold")
	}
}

func TestRandom(t *testing.T) {
	a := axes(t, "lr=1e-4..1e-1:log", "n=2..5", "k=1..100:log", "x=-1.5..2", "opt=sgd,adam")
	cells, err := Random(a, 400, 7)
	if err != nil || len(cells) != 400 {
		t.Fatal(len(cells), err)
	}
	seen := map[string]int{}
	below, few := 0, 0
	for _, c := range cells {
		v := map[string]float64{}
		for _, p := range c {
			name, text, _ := strings.Cut(p, "=")
			v[name], _ = strconv.ParseFloat(text, 64)
			if name == "n" || name == "opt" {
				seen[text]++
			}
			if (name == "n" || name == "k") && strings.ContainsAny(text, ".e") || (name == "lr" || name == "x") && !strings.ContainsAny(text, ".e") {
				t.Errorf("%s", p)
			}
		}
		if v["lr"] < 1e-4 || v["lr"] > 1e-1 || v["x"] < -1.5 || v["x"] > 2 || v["k"] < 1 || v["k"] > 100 {
			t.Errorf("%v is outside", c)
		}
		if v["lr"] < math.Sqrt(1e-5) {
			below++ // half of them, on a logarithmic scale
		}
		if v["k"] <= 10 {
			few++
		}
	}
	if len(seen) != 6 || seen["2"] < 60 || seen["5"] < 60 || seen["adam"] < 150 || below < 160 || below > 240 || few < 160 || few > 260 {
		t.Errorf("%v, %d, %d", seen, below, few)
	}
	// The seed decides, and more draws begin with the same ones.
	again, _ := Random(a, 20, 7)
	other, _ := Random(a, 20, 8)
	if fmt.Sprint(again) != fmt.Sprint(cells[:20]) || fmt.Sprint(other) == fmt.Sprint(again) {
		t.Errorf("%v\n%v", again, other)
	}
	// Known draws, so that a sweep stays the same with another drun.
	if got := again[0].String(); got != knownDraw {
		t.Errorf("first draw: %s", got)
	}
	// No combination comes twice, and each of a few does, the ends too.
	for _, text := range []string{"n=1..3", "n=1..3:log", "n=7..9:log", "n=a,b,c"} {
		if few, err := Random(axes(t, text), 10, 1); err != nil || len(few) != 3 {
			t.Errorf("%s: %v, %v", text, few, err)
		}
	}
}

const knownDraw = "lr=0.000235517 n=4 k=25 x=-0.76053 opt=sgd"
