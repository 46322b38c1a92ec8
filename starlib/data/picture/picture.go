// Package picture decodes PNG and JPEG files and transforms pictures: resize, crop, flip, normalise. Its results have
// the same bits on every machine: the decoders and the resampling compute with integers, and sums of floats have a fixed
// order. The recipes' module data calls it, also from several threads.
package picture

import (
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	_ "image/jpeg" // for image.Decode
	_ "image/png"  // for image.Decode
	"io"
	"math"
)

// MaxPixels bounds a picture: a small file may declare any size.
const MaxPixels = 1 << 26

// Picture is pixels: Channels planes of Height rows of Width, one plane after the other. They are bytes until a
// transformation makes them floats.
type Picture struct {
	Channels, Height, Width int
	Bytes                   []byte
	Floats                  []float32 // nil while the pixels are bytes
}

// Mode says which channels a picture gets.
type Mode uint8

// The modes: the file's own channels, one of grey, three of colour, or four with opacity.
const (
	Unchanged Mode = iota
	Grey
	RGB
	RGBA
)

// Modes are the modes by name.
var Modes = map[string]Mode{"UNCHANGED": Unchanged, "GRAY": Grey, "RGB": RGB, "RGB_ALPHA": RGBA}

// Info is what a file says about itself.
type Info struct {
	Format                  string // png or jpeg
	Width, Height, Channels int
}

// Describe reads the beginning of a file.
func Describe(in io.Reader) (Info, error) {
	config, format, err := image.DecodeConfig(in)
	switch {
	case errors.Is(err, image.ErrFormat):
		return Info{}, errors.New("byte 0: neither a PNG nor a JPEG file")
	case err != nil:
		return Info{}, corrupt(format, err)
	}
	return Info{format, config.Width, config.Height, channelsOf(config.ColorModel)}, nil
}

func corrupt(format string, err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("truncated: the %s data ends early", format)
	}
	return fmt.Errorf("the %s data is corrupt: %w", format, err)
}

func channelsOf(model color.Model) int {
	switch model {
	case color.GrayModel, color.Gray16Model:
		return 1
	case color.NRGBAModel, color.NRGBA64Model:
		return 4
	}
	if p, ok := model.(color.Palette); ok {
		for _, c := range p {
			if _, _, _, a := c.RGBA(); a != 0xffff {
				return 4
			}
		}
	}
	return 3 // also PNG's colours without opacity, which Go decodes as RGBA
}

// Decode decodes a file's content. 16 bits a channel become the upper 8. Errors have no position: the decoders give none.
func Decode(content []byte, mode Mode) (*Picture, error) {
	info, err := Describe(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	if info.Width < 1 || info.Height < 1 || info.Width > MaxPixels/info.Height {
		return nil, fmt.Errorf("it declares %d x %d pixels: a picture may have at most %d", info.Width, info.Height, MaxPixels)
	}
	// A row of a PNG takes at least a byte, and deflate compresses at most 1032 times; JPEG needs a bit for each 8 x 8 block.
	if least := info.Width * info.Height / 8 / 1040; info.Format == "png" && len(content) < least {
		return nil, fmt.Errorf("truncated: %d bytes cannot hold %d x %d pixels", len(content), info.Width, info.Height)
	}
	img, _, err := image.Decode(bytes.NewReader(content))
	if err != nil {
		return nil, corrupt(info.Format, err)
	}
	channels := map[Mode]int{Unchanged: info.Channels, Grey: 1, RGB: 3, RGBA: 4}[mode]
	return fromImage(img, channels), nil
}

// fromImage takes the pixels; grey is computed with the weights of ITU-R 601-2, as Pillow does.
func fromImage(img image.Image, channels int) *Picture {
	pixels := straight(img)
	b := img.Bounds()
	p := &Picture{Channels: channels, Height: b.Dy(), Width: b.Dx()}
	n := p.Height * p.Width
	p.Bytes = make([]byte, channels*n)
	for i := range n {
		at := i/p.Width*pixels.Stride + i%p.Width*4
		c := pixels.Pix[at : at+4]
		if channels == 1 {
			p.Bytes[i] = grey(c[0], c[1], c[2])
			continue
		}
		for k := range channels {
			p.Bytes[k*n+i] = c[k]
		}
	}
	return p
}

func grey(r, g, b byte) byte {
	return byte((19595*uint32(r) + 38470*uint32(g) + 7471*uint32(b) + 1<<15) >> 16)
}

// straight returns the pixels of an image, not premultiplied by opacity.
func straight(img image.Image) *image.NRGBA {
	b := img.Bounds()
	out := image.NewNRGBA(b)
	switch img := img.(type) {
	case *image.NRGBA:
		return img
	case *image.NRGBA64:
		for i := range out.Pix {
			out.Pix[i] = img.Pix[2*i]
		}
		return out
	case interface{ Opaque() bool }:
		if img.Opaque() { // premultiplying by 1 changes nothing
			draw.Draw(&image.RGBA{Pix: out.Pix, Stride: out.Stride, Rect: b}, b, img.(image.Image), b.Min, draw.Src)
			return out
		}
	}
	for y := b.Min.Y; y < b.Max.Y; y++ {
		for x := b.Min.X; x < b.Max.X; x++ {
			out.Set(x, y, img.At(x, y))
		}
	}
	return out
}

// Pictures are resampled as Pillow does, and torchvision for Pillow images: with a triangle filter whose width grows
// with the scale, so that shrinking averages what it covers, first along the rows and then along the columns; bytes with
// weights rounded to 22 bits and integer sums.

const weightBits = 32 - 8 - 2

// taps are the input pixels that make one output pixel: from first on, with their weights, as floats and as integers.
type taps struct {
	first   int
	weights []float64
	fixed   []int32
}

// triangle returns the taps for each of size output pixels, for the input from begin up to end.
func triangle(in, begin, end, size int) []taps {
	scale := float64(end-begin) / float64(size)
	wide := math.Max(scale, 1)
	out := make([]taps, size)
	for i := range out {
		center := float64(begin) + float64((float64(i)+0.5)*scale)
		lo := max(int(center-wide+0.5), 0)
		hi := min(int(center+wide+0.5), in)
		w, fixed := make([]float64, hi-lo), make([]int32, hi-lo)
		sum := 0.0
		for k := range w {
			x := float64((float64(k+lo) - center + 0.5) * float64(1/wide))
			w[k] = math.Max(1-math.Abs(x), 0)
			sum += w[k]
		}
		for k := range w {
			if sum != 0 {
				w[k] /= sum
			}
			fixed[k] = int32(math.Floor(float64(w[k]*(1<<weightBits)) + 0.5)) // no weight is negative
		}
		out[i] = taps{lo, w, fixed}
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
	columns := triangle(p.Width, part.Left, part.Left+part.Width, width)
	lines := triangle(p.Height, part.Top, part.Top+part.Height, height)
	out := &Picture{Channels: p.Channels, Height: height, Width: width}
	if p.Floats != nil {
		out.Floats = resize(p.Floats, p, columns, lines, sumFloats)
	} else {
		out.Bytes = resize(p.Bytes, p, columns, lines, sumBytes)
	}
	return out, nil
}

// resize resamples rows first, then columns.
func resize[T any](in []T, p *Picture, columns, lines []taps, sum func(in []T, step int, t *taps) T) []T {
	width := len(columns)
	out := make([]T, 0, p.Channels*len(lines)*width)
	plane := make([]T, p.Height*width)
	for c := range p.Channels {
		for y := range p.Height {
			row := in[(c*p.Height+y)*p.Width:][:p.Width]
			for x := range columns {
				plane[y*width+x] = sum(row[columns[x].first:], 1, &columns[x])
			}
		}
		for y := range lines {
			for x := range width {
				out = append(out, sum(plane[lines[y].first*width+x:], width, &lines[y]))
			}
		}
	}
	return out
}

func sumBytes(in []byte, step int, t *taps) byte {
	sum := int32(1 << (weightBits - 1))
	for k, w := range t.fixed {
		sum += int32(in[k*step]) * w
	}
	return byte(min(max(sum>>weightBits, 0), 255))
}

func sumFloats(in []float32, step int, t *taps) float32 {
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
