// Package picture decodes PNG and JPEG files and transforms pictures: resize, crop, flip, normalise. Its results have
// the same bits on every machine: the decoders and the resampling compute with integers, and sums of floats have a fixed
// order. The recipes' module data calls it, also from several threads.
package picture

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"image"
	"image/color"
	"image/draw"
	"image/jpeg"
	"image/png"
	"io"
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

// The modes: the file's channels, one of grey, three of colour, four with opacity.
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
	r := bufio.NewReader(in)
	magic, _ := r.Peek(8)
	decode := jpeg.DecodeConfig
	info := Info{Format: "jpeg"}
	switch {
	case string(magic) == "\x89PNG\r\n\x1a\n":
		decode, info.Format = png.DecodeConfig, "png"
	case bytes.HasPrefix(magic, []byte("\xff\xd8")):
	default:
		return Info{}, errors.New("byte 0: neither a PNG nor a JPEG file")
	}
	config, err := decode(r)
	if err != nil {
		return Info{}, corrupt(info.Format, err)
	}
	info.Width, info.Height, info.Channels = config.Width, config.Height, channelsOf(config.ColorModel)
	return info, nil
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
	decode := png.Decode
	if info.Format == "jpeg" {
		decode = jpeg.Decode
	}
	img, err := decode(bytes.NewReader(content))
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

// straight are the pixels of an image, without premultiplied opacity.
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
		if img.Opaque() { // premultiplied or not is the same
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
