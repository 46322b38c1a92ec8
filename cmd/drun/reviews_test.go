package main

import (
	"flag"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
)

var writeReviews = flag.Bool("write-reviews", false, "write examples/cookbook/reviews.parquet")

// A review is a row of examples/cookbook/reviews.parquet: a few words on a meal, and whether they praise it.
type review struct {
	Text string `parquet:"text,zstd"`
	Good bool   `parquet:"good"`
}

// reviews makes reviews of which no word alone says whether they praise: "not" turns the word after it around, and of what
// "but" and "although" weigh, one side counts.
func reviews(n int) []review {
	r := rand.New(rand.NewPCG(7, 11))
	of := func(words string) string {
		list := strings.Split(words, ",")
		return list[r.IntN(len(list))]
	}
	clause := func(good bool) string {
		not := r.IntN(3) == 0
		word := of("tasty,fresh,crisp,lovely,superb,delicious,friendly to us,worth the wait")
		if good == not {
			word = of("stale,bland,cold,greasy,burnt,awful,far too salty,a letdown")
		}
		verb := of("was,was really,was quite,turned out to be,seemed")
		if not {
			verb = of("was not,was hardly,was never,was not at all,did not seem")
		}
		return "the " + of("soup,bread,fish,salad,pizza,coffee,cake,steak,rice,service,dessert,wine") + " " + verb + " " + word
	}
	list := make([]review, n)
	for i := range list {
		good := r.IntN(2) == 0
		var text string
		switch r.IntN(4) {
		case 0:
			text = clause(good)
		case 1:
			text = clause(good) + " and " + clause(good)
		case 2:
			text = clause(!good) + ", but " + clause(good)
		case 3:
			text = "although " + clause(!good) + ", " + clause(good)
		}
		list[i] = review{strings.ToUpper(text[:1]) + text[1:] + of(".,!,"), good}
	}
	return list
}

// The cookbook's file of texts is what reviews makes, so that everybody knows what a model can learn of it.
func TestReviews(t *testing.T) {
	const name = "../../examples/cookbook/reviews.parquet"
	want := reviews(2000)
	if *writeReviews {
		if err := parquet.WriteFile(name, want); err != nil {
			t.Fatal(err)
		}
	}
	got, err := parquet.ReadFile[review](name)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s has %d other rows: go test ./cmd/drun -run TestReviews -write-reviews writes it", name, len(got))
	}
	if info, _ := os.Stat(name); info.Size() > 64<<10 {
		t.Errorf("%d bytes are much for an example", info.Size())
	}
}
