package distributed

import (
	"fmt"
	"slices"

	"go.starlark.net/starlark"

	"drun/collective"
	"drun/internal/try"
	"drun/starlib"
	"drun/tensor"
)

// division says which ranks divide a model: its layers, its stages, or both. Its parameters refer to it, so that nothing is
// averaged over ranks that have other parts, and a norm counts each part once.
type division struct {
	layers, stages *Group // nil: not divided so
	copies         *Group // ranks that have the same parts; nil: it is not known which
}

// place notes that tensors belong to a model that is divided so; what is known of them already remains.
func place(ts []*tensor.Tensor, d division, part, stage bool) {
	for _, t := range ts {
		to := &tensor.Placement{Part: part, Stage: stage}
		of := d
		if was, _ := divisionOf(t); was != nil {
			to.Part, to.Stage = part || t.Placement().Part, stage || t.Placement().Stage
			of = division{first(d.layers, was.layers), first(d.stages, was.stages), first(d.copies, was.copies)}
		}
		to.By = &of
		t.SetPlacement(to)
	}
}

func first(a, b *Group) *Group {
	if a != nil {
		return a
	}
	return b
}

// divisionOf returns how the model is divided that t belongs to, nil if it is not, and the groups whose ranks have other parts
// than t in its place.
func divisionOf(t *tensor.Tensor) (d *division, others []*Group) {
	p := t.Placement()
	if p == nil {
		return nil, nil
	}
	d = p.By.(*division)
	if p.Part {
		others = append(others, d.layers)
	}
	if p.Stage {
		others = append(others, d.stages)
	}
	return d, others
}

// copiesOf reads the argument group of a builtin that makes the ranks' tensors equal: by default, of a model on a mesh, the ranks
// that have copies of it. It is an error if the group has a rank with another part in a tensor's place.
func copiesOf(g *Group, c *starlib.Call, ts []*tensor.Tensor) (*Group, error) {
	if c.IsNone("group") {
		var copies *Group
		for i, t := range ts {
			of := (*Group)(nil)
			if d, _ := divisionOf(t); d != nil {
				of = d.copies
			}
			try.FailIf(i > 0 && of != copies, "the tensors belong to models that are divided among different ranks, or not all to one: give group, the ranks that have copies of them")
			copies = of
		}
		g = first(copies, g)
	}
	return g, sameParts(g, ts)
}

// sameParts returns an error if a rank of the group has another part of a divided model in the place of one of the tensors.
func sameParts(g *Group, ts []*tensor.Tensor) error {
	for i, t := range ts {
		_, others := divisionOf(t)
		for _, o := range others {
			if slices.ContainsFunc(g.ranks, func(r int) bool { return r != g.world.rank.Rank && slices.Contains(o.ranks, r) }) {
				return fmt.Errorf("%s divide the model of tensor %d, of shape %s, and each has another part: give group, the ranks that have copies of this one's, such as mesh[\"dp\"]",
					collective.RankList(o.ranks), i, tensor.ShapeString(t.Shape()))
			}
		}
	}
	return nil
}

// GradSquareSum adds up the squares of all gradients, those of divided models over the ranks that divide them.
func (w *World) GradSquareSum(c *starlib.Call, params []*tensor.Tensor) (float64, error) {
	return w.squareSum(c, params, params, nil)
}

// squareSum is GradSquareSum of the ranks' shards of the parameters, which the ranks of a group hold; nil: they are whole.
func (w *World) squareSum(c *starlib.Call, params, shards []*tensor.Tensor, of *Group) (_ float64, err error) {
	defer try.Caught(&err)
	var parts [4][]*tensor.Tensor // by whether it is a part, 1, and of a stage, 2
	var by division
	for i, p := range params {
		d, _ := divisionOf(p)
		if d == nil {
			parts[0] = append(parts[0], shards[i])
			continue
		}
		try.FailIf(by.layers != nil && d.layers != nil && by.layers != d.layers || by.stages != nil && d.stages != nil && by.stages != d.stages,
			"the parameters belong to models that different ranks divide: clip them by themselves")
		by.layers, by.stages = first(by.layers, d.layers), first(by.stages, d.stages)
		at := 0
		if p.Placement().Part {
			at |= 1
		}
		if p.Placement().Stage {
			at |= 2
		}
		parts[at] = append(parts[at], shards[i])
	}
	var sums [4]float64
	for i := range sums {
		sums[i] = try.To(tensor.GradSquareSum(parts[i]))
	}
	if of != nil {
		try.Ok(sumFloats(of, c, w.within, sums[:]))
	}
	if by.layers != nil {
		over := []float64{sums[1], sums[3]}
		try.Ok(sumFloats(by.layers, c, w.within, over))
		sums[1], sums[3] = over[0], over[1]
	}
	if by.stages != nil {
		over := []float64{sums[2] + sums[3]}
		try.Ok(sumFloats(by.stages, c, w.within, over))
		sums[2], sums[3] = over[0], 0
	}
	return sums[0] + sums[1] + sums[2] + sums[3], nil
}

// sameDraws has compute draw the random numbers of its rank from a stream that the ranks have in common.
func (w *World) sameDraws(ranks []int, compute func() (starlark.Value, error)) (starlark.Value, error) {
	own, common := w.streams.PerRank.Stream, w.streams.Group(ranks).Stream
	before := *own
	*own = *common
	defer func() { *common, *own = *own, before }()
	return compute()
}

// Divided is what checkpoints keep of how models are divided: this rank's place on each one's mesh. Another rank's parts may have the
// same shapes.
type Divided struct{ places []string }

func (d *Divided) State() (entries []starlib.Entry) {
	for i, place := range d.places {
		entries = append(entries, starlib.Entry{Name: fmt.Sprint("mesh.", i), Value: starlark.String(place)})
	}
	return entries
}

func (d *Divided) SetState([]starlib.Entry) error { return nil }

// Differences says where a checkpoint has the parts of another place.
func (d *Divided) Differences(saved []starlib.Entry, _ bool) (differences []string) {
	for i, e := range d.State() {
		if i < len(saved) && saved[i].Value != e.Value {
			differences = append(differences, fmt.Sprintf("this rank saved the part %s of a model, and has %s now: restore it on the same mesh", saved[i].Value, e.Value))
		}
	}
	return differences
}
