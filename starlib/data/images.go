package data

import (
	"fmt"
	"io"
	"math"
	"path"
	"slices"
	"strings"

	"go.starlark.net/starlark"

	"drun/internal/try"
	"drun/kernel/dtype"
	"drun/starlib"
	"drun/starlib/data/picture"
	"drun/starlib/random"
	startensor "drun/starlib/tensor"
	"drun/tensor"
)

// images are samples that are decoded from files when taken: (x, class) in folders of classes.
type images struct {
	files     *starlib.Files
	names     []string
	y         starlark.Tuple
	classes   []string
	mode      picture.Mode
	transform *transform
	ctx       *tensor.Context
	seed      uint64
}

func (im *images) Len() int { return len(im.names) }

// read decodes and transforms one picture. It may run on any thread.
func (im *images) read(epoch, i int) (r result) {
	r.picture, r.report, r.err = readPicture(im.files, im.names[i], im.mode)
	if r.err == nil && im.transform != nil {
		g := random.New(nil, im.seed, random.SampleTransform, uint64(epoch), uint64(i)).Stream
		if r.picture, r.err = im.transform.apply(r.picture, g); r.err != nil {
			r.err = fmt.Errorf("%s: %w", im.names[i], r.err)
		}
	}
	return r
}

func (im *images) sample(a *access, i int) (starlark.Value, error) {
	r := a.take(im, i)
	if r.err != nil {
		return nil, r.err
	}
	r.report()
	x, err := pictureTensor(im.ctx, r.picture)
	return starlark.Tuple{x, im.y[i]}, err
}

func readPicture(files *starlib.Files, name string, mode picture.Mode) (_ *picture.Picture, _ func(), err error) {
	defer try.Caught(&err)
	f := try.To(files.OpenQuietly(name))
	defer f.Close()
	content, err := io.ReadAll(f)
	var p *picture.Picture
	if err == nil {
		p, err = picture.Decode(content, mode)
	}
	try.FailIf(err != nil, "%s: %w", name, err)
	return p, f.Report, nil
}

func pictureTensor(ctx *tensor.Context, p *picture.Picture) (starlark.Value, error) {
	shape := []int{p.Channels, p.Height, p.Width}
	if p.Floats != nil {
		return startensor.Result(tensor.FromBytes(ctx, bytesOf(p.Floats), shape, dtype.Float32))
	}
	return startensor.Result(tensor.FromBytes(ctx, p.Bytes, shape, dtype.Uint8))
}

// A transform is one or more steps that change a picture. It draws its random numbers from the generator in a fixed order.
type transform struct {
	starlib.Opaque
	name   string
	random bool
	apply  func(p *picture.Picture, g *tensor.Generator) (*picture.Picture, error)
	ctx    *tensor.Context
}

var _ starlark.Callable = (*transform)(nil)

func (t *transform) String() string { return "<transform " + t.name + ">" }
func (t *transform) Name() string   { return t.name }

var transformMethods = &starlib.Methods{Type: "Transform", Doc: "A transformation of pictures, for data.image_folder and data.compose. t(x, generator) applies it to a tensor: one picture of shape (C, H, W), or a batch (N, C, H, W) whose pictures draw their random numbers one after the other; uint8, or float32 from 0 to 1."}

// CallInternal is t(x, generator).
func (t *transform) CallInternal(_ *starlark.Thread, args starlark.Tuple, kwargs []starlark.Tuple) (_ starlark.Value, err error) {
	defer try.Caught(&err)
	var x *startensor.Value
	var generator starlark.Value = starlark.None
	try.Ok(starlark.UnpackArgs(t.name, args, kwargs, "x", &x, "generator?", &generator))
	out, err := t.call(x.Tensor(), generator)
	try.FailIf(err != nil, "%s: %w", t.name, err)
	return out, nil
}

func (t *transform) call(x *tensor.Tensor, generator starlark.Value) (_ starlark.Value, err error) {
	defer try.Caught(&err)
	g, ok := generator.(*random.Generator)
	try.FailIf(t.random && !ok, "it draws random numbers: give it a generator as its second argument, such as that of data.loader's transform or data.map(..., random = True)")
	if x.Dim() != 3 && x.Dim() != 4 || x.DType() != dtype.Uint8 && x.DType() != dtype.Float32 {
		try.Fail("want uint8 or float32 of shape (C, H, W) or (N, C, H, W), got %s of shape %s", x.DType(), startensor.Shape(x))
	}
	plain := try.To(tensor.Contiguous(x.Detach()))
	shape := plain.Shape()
	n := 1
	if len(shape) == 4 {
		n, shape = shape[0], shape[1:]
	}
	if n == 0 || slices.Contains(shape, 0) {
		try.Fail("there are no pixels in shape %s", startensor.Shape(x))
	}
	size := shape[0] * shape[1] * shape[2]
	list := make([]*tensor.Tensor, n)
	for i := range list {
		p := &picture.Picture{Channels: shape[0], Height: shape[1], Width: shape[2]}
		if plain.DType() == dtype.Uint8 {
			p.Bytes = plain.Bytes()[i*size : (i+1)*size]
		} else {
			p.Floats = view[float32](plain.Bytes())[i*size : (i+1)*size]
		}
		var stream *tensor.Generator
		if ok {
			stream = g.Stream
		}
		p = try.To(t.apply(p, stream))
		v := try.To(pictureTensor(t.ctx, p))
		list[i] = v.(*startensor.Value).Tensor()
	}
	if x.Dim() == 3 {
		return (*startensor.Value)(list[0]), nil
	}
	return startensor.Result(tensor.Stack(list, 0))
}

// sizeOfPicture reads an int, or a pair (height, width).
func sizeOfPicture(v starlark.Value) (height, width int) {
	list := starlark.Tuple{v, v}
	switch v := v.(type) {
	case starlark.Tuple:
		list = v
	case *starlark.List:
		list = slices.Collect(starlark.Elements(v))
	}
	sizes, err := startensor.Ints(list)
	try.FailIf(err != nil || len(sizes) != 2, "size = %s: want a number of pixels, or (height, width)", v)
	height, width = sizes[0], sizes[1]
	try.FailIf(height < 1 || width < 1 || height > picture.MaxPixels/width, "size = %s: want from 1 to %d pixels", v, picture.MaxPixels)
	return height, width
}

// resizeTo returns the size of a picture whose shorter side becomes n.
func resizeTo(p *picture.Picture, n int) (height, width int) {
	if p.Height <= p.Width {
		return n, int(int64(n) * int64(p.Width) / int64(p.Height))
	}
	return int(int64(n) * int64(p.Height) / int64(p.Width)), n
}

// below draws an integer from 0 up to, not including, n.
func below(g *tensor.Generator, n int) int { return min(int(g.Float()*float64(n)), n-1) }

func center(p *picture.Picture, height, width int) picture.Rect {
	return picture.Rect{Top: halfEven(p.Height - height), Left: halfEven(p.Width - width), Height: height, Width: width}
}

// halfEven is n/2, with halves rounded to even, as torchvision rounds.
func halfEven(n int) int { return int(math.RoundToEven(float64(n) / 2)) }

func floats32(v starlark.Value, what string) []float32 {
	list := []starlark.Value{v}
	if it, ok := v.(starlark.Iterable); ok {
		list = slices.Collect(starlark.Elements(it))
	}
	out := make([]float32, len(list))
	for i, x := range list {
		f, err := starlib.AsNumber(x)
		try.FailIf(err != nil || math.IsNaN(f) || math.IsInf(f, 0) || what == "std" && f == 0, "%s: %s is not a number for a channel", what, x)
		out[i] = float32(f)
	}
	try.FailIf(len(out) == 0, "%s: no numbers", what)
	return out
}

// interval reads a pair of numbers, 0 < low <= high.
func interval(v starlark.Value, what string) (low, high float64) {
	list, ok := v.(starlark.Tuple)
	if ok && len(list) == 2 {
		low, high = starlib.Number(list[0]), starlib.Number(list[1])
	}
	try.FailIf(!(low > 0 && low <= high && high < 1e6), "%s = %s: want a pair (low, high) of numbers above 0", what, v)
	return low, high
}

// between returns low (high/low)^u, using only float64 sums and products: the bits of math.Pow differ between machines.
func between(low, high, u float64) float64 {
	q := (high - low) / (high + low) // ln(high/low) = 2 artanh q
	ln, power := 0.0, q
	for k := 1; k < 2000 && power != 0; k += 2 {
		ln += power / float64(k)
		power = float64(power*q) * q
	}
	x, out, term := float64(2*ln)*u, 1.0, 1.0
	for k := 1; k < 100; k++ {
		term = float64(term*x) / float64(k)
		out += term
	}
	return float64(low * out)
}

func transforms(ctx *tensor.Context) []*starlib.Def {
	type step = func(p *picture.Picture, g *tensor.Generator) (*picture.Picture, error)
	def := func(sig, doc string, random bool, make func(c *starlib.Call) step) *starlib.Def {
		name, _, _ := strings.Cut(sig, "(")
		return &starlib.Def{Sig: sig, Doc: doc, Fn: func(c *starlib.Call) (starlark.Value, error) {
			return &transform{Opaque: "Transform", name: name, random: random, apply: make(c), ctx: ctx}, nil
		}}
	}
	flip := func(c *starlib.Call, vertical bool) step {
		share := c.Float("p")
		try.FailIf(!(share >= 0 && share <= 1), "p = %v is not a probability", share)
		return func(p *picture.Picture, g *tensor.Generator) (*picture.Picture, error) {
			if g.Float() < share {
				return p.Flip(vertical), nil
			}
			return p, nil
		}
	}
	whole := func(p *picture.Picture) picture.Rect {
		return picture.Rect{Height: p.Height, Width: p.Width}
	}
	return []*starlib.Def{
		{Sig: "compose(transforms: list | tuple) -> Transform",
			Doc: "Applies transformations of pictures, one after the other.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				all := &transform{Opaque: "Transform", name: "compose", ctx: ctx}
				var steps []*transform
				for v := range starlark.Elements(c.Arg("transforms").(starlark.Iterable)) {
					t, ok := v.(*transform)
					try.FailIf(!ok, "argument transforms: element %d is a %s, not a transformation such as data.resize(32)", len(steps), v.Type())
					steps = append(steps, t)
					all.random = all.random || t.random
				}
				all.apply = func(p *picture.Picture, g *tensor.Generator) (*picture.Picture, error) {
					for _, t := range steps {
						var err error
						if p, err = t.apply(p, g); err != nil {
							return nil, fmt.Errorf("%s: %w", t.name, err)
						}
					}
					return p, nil
				}
				return all, nil
			}},
		def("resize(size: int | tuple | list) -> Transform", "Resamples a picture, bilinear and antialiased, as torchvision's Resize does with a Pillow image, bit for bit on uint8 (to within 1 where a picture becomes wider and flatter): to (height, width), or so that the shorter side has size pixels.", false,
			func(c *starlib.Call) step {
				h, w := sizeOfPicture(c.Arg("size"))
				_, shorter := c.Arg("size").(starlark.Int)
				return func(p *picture.Picture, _ *tensor.Generator) (*picture.Picture, error) {
					if shorter {
						h, w := resizeTo(p, h)
						return p.Resize(h, w, whole(p))
					}
					return p.Resize(h, w, whole(p))
				}
			}),
		def("center_crop(size: int | tuple | list) -> Transform", "The middle of a picture, padded with zeros if the picture is too small.", false,
			func(c *starlib.Call) step {
				h, w := sizeOfPicture(c.Arg("size"))
				return func(p *picture.Picture, _ *tensor.Generator) (*picture.Picture, error) {
					return p.Crop(center(p, h, w))
				}
			}),
		def("random_crop(size: int | tuple | list, padding: int = 0) -> Transform", "A part of a picture at a random position, after padding it with this many pixels of zeros on each side.", true,
			func(c *starlib.Call) step {
				h, w := sizeOfPicture(c.Arg("size"))
				padding := c.Int("padding")
				try.FailIf(padding < 0 || padding > 1<<16, "padding = %d: want from 0 to %d pixels", padding, 1<<16)
				return func(p *picture.Picture, g *tensor.Generator) (*picture.Picture, error) {
					down, right := p.Height+2*padding-h, p.Width+2*padding-w
					if down < 0 || right < 0 {
						return nil, fmt.Errorf("a crop of %d x %d does not fit a picture of %d x %d with a padding of %d", h, w, p.Height, p.Width, padding)
					}
					top := below(g, down+1) - padding
					return p.Crop(picture.Rect{Top: top, Left: below(g, right+1) - padding, Height: h, Width: w})
				}
			}),
		def("random_resized_crop(size: int | tuple | list, scale: tuple = (0.08, 1.0), ratio: tuple = (0.75, 1.3333333333333333)) -> Transform", "A random part of a picture, resized to size: scale is the range of its share of the whole area, ratio the range of width / height; torchvision's RandomResizedCrop.", true,
			func(c *starlib.Call) step {
				h, w := sizeOfPicture(c.Arg("size"))
				small, large := interval(c.Arg("scale"), "scale")
				narrow, wide := interval(c.Arg("ratio"), "ratio")
				return func(p *picture.Picture, g *tensor.Generator) (*picture.Picture, error) {
					r := center(p, min(p.Height, p.Width), min(p.Height, p.Width))
					for range 10 {
						area := float64(p.Height*p.Width) * (small + float64(g.Float()*(large-small)))
						shape := between(narrow, wide, g.Float())
						cw, ch := int(math.RoundToEven(math.Sqrt(area*shape))), int(math.RoundToEven(math.Sqrt(area/shape)))
						if cw > 0 && cw <= p.Width && ch > 0 && ch <= p.Height {
							top := below(g, p.Height-ch+1)
							r = picture.Rect{Top: top, Left: below(g, p.Width-cw+1), Height: ch, Width: cw}
							break
						}
					}
					part, err := p.Crop(r)
					if err != nil {
						return nil, err
					}
					return part.Resize(h, w, whole(part))
				}
			}),
		def("random_horizontal_flip(p: number = 0.5) -> Transform", "Mirrors left and right, with a probability of p.", true,
			func(c *starlib.Call) step { return flip(c, false) }),
		def("random_vertical_flip(p: number = 0.5) -> Transform", "Mirrors top and bottom, with a probability of p.", true,
			func(c *starlib.Call) step { return flip(c, true) }),
		def("grayscale() -> Transform", "One channel from three, with the weights of ITU-R 601-2.", false,
			func(*starlib.Call) step {
				return func(p *picture.Picture, _ *tensor.Generator) (*picture.Picture, error) { return p.Grey() }
			}),
		def("to_float() -> Transform", "Converts uint8 to float32 from 0 to 1; torchvision's ToTensor.", false,
			func(*starlib.Call) step {
				return func(p *picture.Picture, _ *tensor.Generator) (*picture.Picture, error) { return p.ToFloat(), nil }
			}),
		def("normalize(mean: number | list | tuple, std: number | list | tuple) -> Transform", "(x - mean) / std for each channel, as float32; uint8 is first converted as by to_float.", false,
			func(c *starlib.Call) step {
				mean, std := floats32(c.Arg("mean"), "mean"), floats32(c.Arg("std"), "std")
				return func(p *picture.Picture, _ *tensor.Generator) (*picture.Picture, error) { return p.Normalize(mean, std) }
			}),
	}
}

func modeOf(c *starlib.Call) picture.Mode {
	mode, ok := picture.Modes[c.String("mode")]
	try.FailIf(!ok, "mode = %s: want \"RGB\", \"GRAY\", \"RGB_ALPHA\" or \"UNCHANGED\"", c.Arg("mode"))
	return mode
}

// imageFolder finds the pictures of a folder that has a folder for each class.
func imageFolder(r *starlib.Rank, ctx *tensor.Context, c *starlib.Call) (starlark.Value, error) {
	dir := c.String("path")
	mode := modeOf(c)
	names := try.To(r.Files.List(dir))
	im := &images{files: r.Files, mode: mode, ctx: ctx, seed: r.Seed}
	im.transform, _ = c.Arg("transform").(*transform)
	for _, name := range names {
		class, _, ok := strings.Cut(name, "/")
		if !ok || !isPicture(strings.ToLower(path.Base(name))) {
			continue // beside the class folders, or no picture
		}
		if len(im.classes) == 0 || im.classes[len(im.classes)-1] != class { // the names are sorted
			im.classes = append(im.classes, class)
		}
		im.names = append(im.names, path.Join(dir, name))
		im.y = append(im.y, starlark.MakeInt(len(im.classes)-1))
	}
	try.FailIf(len(im.names) == 0, "%s: there are no pictures (.png, .jpg, .jpeg) in its subfolders; want one subfolder for each class", dir)
	return &Dataset{im, c.Thread}, nil
}

func pictures(r *starlib.Rank, ctx *tensor.Context) []*starlib.Def {
	return []*starlib.Def{
		{Sig: `image(path: string, mode: string = "RGB") -> Tensor`,
			Doc: "A PNG or JPEG file as uint8, shape (channels, height, width). mode: \"RGB\", \"GRAY\", \"RGB_ALPHA\", or \"UNCHANGED\" for the channels that the file has; 16 bits per channel become 8. The pixels have the same bits on every machine.",
			Fn: func(c *starlib.Call) (starlark.Value, error) {
				mode := modeOf(c)
				p, report := try.To2(readPicture(r.Files, c.String("path"), mode))
				report()
				return pictureTensor(ctx, p)
			}},
		{
			Sig: `image_folder(path: string, transform: Transform = None, mode: string = "RGB") -> Dataset`,
			Doc: "The PNG and JPEG files of a folder that has a subfolder for each class. Samples are (x, class): x is uint8 of shape (channels, height, width), or what transform makes of it; class is the number of its subfolder, sorted by name (ds.classes). Files are decoded and transformed when a sample is taken; data.loader does this ahead of time, on other threads; randomness depends only on the run's seed, the epoch and the number of the sample. data.cache keeps decoded pictures in memory.",
			Fn:  func(c *starlib.Call) (starlark.Value, error) { return imageFolder(r, ctx, c) },
		},
	}
}
