package picture

import (
	"fmt"
	"math"
)

// Pictures are resampled as Pillow does, and torchvision for Pillow images: with a triangle filter whose width grows
// with the scale, so that shrinking averages what it covers, first along the rows and then along the columns; bytes with
// weights rounded to 22 bits and integer sums.

const weightBits = 32 - 8 - 2

// taps are the input pixels that make one output pixel: from first on, with their weights.
type taps struct {
	first   int
	weights []float64
}

// triangle returns the taps for each of size output pixels, for the input from begin up to end.
func triangle(in int, begin, end float64, size int) []taps {
	scale := (end - begin) / float64(size)
	wide := math.Max(scale, 1)
	out := make([]taps, size)
	for i := range out {
		center := begin + float64((float64(i)+0.5)*scale)
		lo := max(int(center-wide+0.5), 0)
		hi := min(int(center+wide+0.5), in)
		w := make([]float64, hi-lo)
		sum := 0.0
		for k := range w {
			x := float64((float64(k+lo) - center + 0.5) * float64(1/wide))
			w[k] = math.Max(1-math.Abs(x), 0)
			sum += w[k]
		}
		if sum != 0 {
			for k := range w {
				w[k] /= sum
			}
		}
		out[i] = taps{lo, w}
	}
	return out
}

// Resize resamples part of a picture to a size, bilinear and antialiased. The part must lie in the picture.
func (p *Picture) Resize(height, width int, part Rect) (*Picture, error) {
	if height < 1 || width < 1 || height > MaxPixels/width {
		return nil, fmt.Errorf("a size of %d x %d pixels: want from 1 x 1 to %d pixels", height, width, MaxPixels)
	}
	if part == (Rect{0, 0, p.Height, p.Width}) && height == p.Height && width == p.Width {
		return p, nil
	}
	columns := prepare(triangle(p.Width, float64(part.Left), float64(part.Left+part.Width), width))
	lines := prepare(triangle(p.Height, float64(part.Top), float64(part.Top+part.Height), height))
	out := &Picture{Channels: p.Channels, Height: height, Width: width}
	if p.Floats != nil {
		out.Floats = resize(p.Floats, p, columns, lines, sumFloats)
	} else {
		out.Bytes = resize(p.Bytes, p, columns, lines, sumBytes)
	}
	return out, nil
}

// resize resamples rows first, then columns.
func resize[T any](in []T, p *Picture, columns, lines []prepared, sum func(in []T, step int, t *prepared) T) []T {
	out := make([]T, 0, p.Channels*len(lines)*len(columns))
	for c := range p.Channels {
		plane := in[c*p.Height*p.Width : (c+1)*p.Height*p.Width]
		out = append(out, down(along(plane, p.Width, columns, sum), len(columns), lines, sum)...)
	}
	return out
}

// along resamples each row of a plane.
func along[T any](plane []T, width int, columns []prepared, sum func(in []T, step int, t *prepared) T) []T {
	n := len(plane) / width
	out := make([]T, n*len(columns))
	for r := range n {
		row := plane[r*width : (r+1)*width]
		for i := range columns {
			out[r*len(columns)+i] = sum(row[columns[i].first:], 1, &columns[i])
		}
	}
	return out
}

// down resamples each column of a plane.
func down[T any](plane []T, width int, lines []prepared, sum func(in []T, step int, t *prepared) T) []T {
	out := make([]T, len(lines)*width)
	for i := range lines {
		for x := range width {
			out[i*width+x] = sum(plane[lines[i].first*width+x:], width, &lines[i])
		}
	}
	return out
}

// prepared are taps with weights for both integer and float sums.
type prepared struct {
	taps
	fixed []int32
}

func prepare(list []taps) []prepared {
	out := make([]prepared, len(list))
	for i, t := range list {
		fixed := make([]int32, len(t.weights))
		for k, w := range t.weights {
			fixed[k] = int32(math.Floor(float64(w*(1<<weightBits)) + 0.5)) // no weight is negative
		}
		out[i] = prepared{t, fixed}
	}
	return out
}

func sumBytes(in []byte, step int, t *prepared) byte {
	sum := int32(1 << (weightBits - 1))
	for k, w := range t.fixed {
		sum += int32(in[k*step]) * w
	}
	return byte(min(max(sum>>weightBits, 0), 255))
}

func sumFloats(in []float32, step int, t *prepared) float32 {
	sum := 0.0
	for k, w := range t.weights {
		sum += float64(float64(in[k*step]) * w)
	}
	return float32(sum)
}

// Rect is a part of a picture, in pixels.
type Rect struct{ Top, Left, Height, Width int }

// Crop takes a part; what lies outside is filled with zeros.
func (p *Picture) Crop(r Rect) (*Picture, error) {
	if r.Height < 1 || r.Width < 1 || r.Height > MaxPixels/r.Width {
		return nil, fmt.Errorf("a crop of %d x %d pixels: want from 1 x 1 to %d pixels", r.Height, r.Width, MaxPixels)
	}
	out := &Picture{Channels: p.Channels, Height: r.Height, Width: r.Width}
	if p.Floats != nil {
		out.Floats = crop(p.Floats, p, r)
	} else {
		out.Bytes = crop(p.Bytes, p, r)
	}
	return out, nil
}

func crop[T any](in []T, p *Picture, r Rect) []T {
	out := make([]T, p.Channels*r.Height*r.Width)
	lo, hi := max(r.Left, 0), min(r.Left+r.Width, p.Width)
	if lo >= hi {
		return out
	}
	for c := range p.Channels {
		for y := max(r.Top, 0); y < min(r.Top+r.Height, p.Height); y++ {
			from := (c*p.Height + y) * p.Width
			to := (c*r.Height+y-r.Top)*r.Width + lo - r.Left
			copy(out[to:], in[from+lo:from+hi])
		}
	}
	return out
}

// Flip mirrors left and right, or, vertically, top and bottom.
func (p *Picture) Flip(vertical bool) *Picture {
	out := &Picture{Channels: p.Channels, Height: p.Height, Width: p.Width}
	if p.Floats != nil {
		out.Floats = flip(p.Floats, p, vertical)
	} else {
		out.Bytes = flip(p.Bytes, p, vertical)
	}
	return out
}

func flip[T any](in []T, p *Picture, vertical bool) []T {
	out := make([]T, len(in))
	for r := range p.Channels * p.Height {
		row := in[r*p.Width : (r+1)*p.Width]
		if vertical {
			c, y := r/p.Height, r%p.Height
			copy(out[(c*p.Height+p.Height-1-y)*p.Width:], row)
			continue
		}
		for x, v := range row {
			out[r*p.Width+p.Width-1-x] = v
		}
	}
	return out
}

// ToFloat converts bytes to floats from 0 to 1.
func (p *Picture) ToFloat() *Picture {
	if p.Floats != nil {
		return p
	}
	out := &Picture{Channels: p.Channels, Height: p.Height, Width: p.Width, Floats: make([]float32, len(p.Bytes))}
	for i, b := range p.Bytes {
		out.Floats[i] = float32(b) / 255
	}
	return out
}

// Normalize subtracts the mean and divides by the deviation of each channel; one number stands for all channels.
func (p *Picture) Normalize(mean, std []float32) (*Picture, error) {
	for _, list := range [][]float32{mean, std} {
		if len(list) != 1 && len(list) != p.Channels {
			return nil, fmt.Errorf("%d numbers for the %d channels of a picture", len(list), p.Channels)
		}
	}
	in := p.ToFloat()
	out := &Picture{Channels: p.Channels, Height: p.Height, Width: p.Width, Floats: make([]float32, len(in.Floats))}
	n := p.Height * p.Width
	for c := range p.Channels {
		m, s := mean[min(c, len(mean)-1)], std[min(c, len(std)-1)]
		for i := c * n; i < (c+1)*n; i++ {
			out.Floats[i] = (in.Floats[i] - m) / s
		}
	}
	return out, nil
}

// Grey makes one channel from three, with the weights of ITU-R 601-2.
func (p *Picture) Grey() (*Picture, error) {
	if p.Channels == 1 {
		return p, nil
	}
	if p.Channels != 3 {
		return nil, fmt.Errorf("the picture has %d channels: want 3", p.Channels)
	}
	n := p.Height * p.Width
	out := &Picture{Channels: 1, Height: p.Height, Width: p.Width}
	if p.Floats != nil {
		out.Floats = make([]float32, n)
		for i := range n {
			sum := float32(0.299 * p.Floats[i])
			sum += float32(0.587 * p.Floats[n+i])
			sum += float32(0.114 * p.Floats[2*n+i])
			out.Floats[i] = sum
		}
		return out, nil
	}
	out.Bytes = make([]byte, n)
	for i := range n {
		out.Bytes[i] = grey(p.Bytes[i], p.Bytes[n+i], p.Bytes[2*n+i])
	}
	return out, nil
}
