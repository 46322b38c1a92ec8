package picture

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"os"
	"strings"
	"testing"
	"time"
)

func decode(t *testing.T, name string, mode Mode) *Picture {
	t.Helper()
	content, err := os.ReadFile("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	p, err := Decode(content, mode)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return p
}

// Resizing and grey have the bits that Pillow gives.
func TestAsPillow(t *testing.T) {
	photo := decode(t, "photo.png", RGB)
	for name, size := range map[string][2]int{"small": {9, 11}, "large": {50, 64}, "wide": {5, 80}, "one": {1, 1}, "flat": {12, 30}, "tall": {70, 9}, "square": {20, 20}, "half": {11, 18}} {
		want := decode(t, "photo_"+name+".png", RGB)
		got, err := photo.Resize(size[0], size[1], Rect{0, 0, photo.Height, photo.Width})
		if err != nil || got.Height != want.Height || got.Width != want.Width {
			t.Fatalf("%s: %v", name, err)
		}
		for i, b := range got.Bytes { // Pillow goes along the columns first where a picture becomes wider and flatter
			if d := int(b) - int(want.Bytes[i]); d != 0 && (name != "wide" || d*d > 1) {
				t.Fatalf("%s: element %d is %d, and Pillow has %d", name, i, b, want.Bytes[i])
			}
		}
		floats, err := photo.ToFloat().Resize(size[0], size[1], Rect{0, 0, photo.Height, photo.Width})
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range floats.Floats {
			if d := f*255 - float32(want.Bytes[i]); d > 1 || d < -1 {
				t.Fatalf("%s: element %d is %v as float and %d as byte", name, i, f*255, want.Bytes[i])
			}
		}
	}
	grey := decode(t, "photo_grey.png", Unchanged)
	if got, err := photo.Grey(); err != nil || grey.Channels != 1 || !bytes.Equal(got.Bytes, grey.Bytes) {
		t.Errorf("grey is not as Pillow has it: %v", err)
	}
	if got := decode(t, "photo.png", Grey); !bytes.Equal(got.Bytes, grey.Bytes) {
		t.Error("decoding as grey is not as Pillow has it")
	}
	if got, want := decode(t, "photo_palette.png", RGB), decode(t, "photo_palette_rgb.png", RGB); !bytes.Equal(got.Bytes, want.Bytes) {
		t.Error("a palette is not as Pillow has it")
	}
	rgba := decode(t, "photo_rgba.png", Unchanged)
	n := photo.Height * photo.Width
	if rgba.Channels != 4 || !bytes.Equal(rgba.Bytes[:3*n], photo.Bytes) || rgba.Bytes[3*n] != 100 {
		t.Error("opacity changes colours")
	}
	if got := decode(t, "photo_rgba.png", RGB); !bytes.Equal(got.Bytes, photo.Bytes) {
		t.Error("without opacity the colours are others")
	}
	// JPEG decoders differ in rounding and in how they enlarge colours.
	got, want := decode(t, "photo.jpg", RGB), decode(t, "photo_jpg.png", RGB)
	sum := 0
	for i := range got.Bytes {
		d := int(got.Bytes[i]) - int(want.Bytes[i])
		sum += max(d, -d)
	}
	if mean := float64(sum) / float64(len(got.Bytes)); mean > 12 {
		t.Errorf("JPEG: %v from Pillow's on average", mean)
	}
}

// A part is resized even where the result is as large as the whole picture.
func TestResizeOfAPart(t *testing.T) {
	p := &Picture{Channels: 1, Height: 1, Width: 4, Bytes: []byte{10, 10, 200, 200}}
	got, err := p.Resize(1, 4, Rect{0, 0, 1, 2})
	if err != nil || !bytes.Equal(got.Bytes, []byte{10, 10, 10, 58}) {
		t.Errorf("%v, %v", got, err)
	}
	if whole, err := p.Resize(1, 4, Rect{0, 0, 1, 4}); err != nil || !bytes.Equal(whole.Bytes, p.Bytes) {
		t.Errorf("%v, %v", whole, err)
	}
}

func TestCropAndFlip(t *testing.T) {
	p := &Picture{Channels: 1, Height: 2, Width: 3, Bytes: []byte{1, 2, 3, 4, 5, 6}}
	for _, c := range []struct {
		r    Rect
		want string
	}{
		{Rect{0, 1, 2, 2}, "\x02\x03\x05\x06"},
		{Rect{-1, -1, 2, 2}, "\x00\x00\x00\x01"},
		{Rect{1, 2, 2, 2}, "\x06\x00\x00\x00"},
		{Rect{5, 5, 1, 1}, "\x00"},
	} {
		if got, err := p.Crop(c.r); err != nil || string(got.Bytes) != c.want {
			t.Errorf("%v: %v, %v", c.r, got, err)
		}
	}
	if got := p.Flip(false); string(got.Bytes) != "\x03\x02\x01\x06\x05\x04" {
		t.Error(got)
	}
	if got := p.Flip(true); string(got.Bytes) != "\x04\x05\x06\x01\x02\x03" {
		t.Error(got)
	}
	if got, err := p.Normalize([]float32{0.5}, []float32{0.25}); err != nil || got.Floats[0] != (float32(1)/255-0.5)/0.25 {
		t.Error(got, err)
	}
	if _, err := p.Normalize([]float32{0, 0}, []float32{1}); err == nil {
		t.Error("two means for one channel")
	}
}

// header makes the beginning of a PNG file of that size.
func header(width, height uint32) []byte {
	body := []byte("IHDR")
	body = binary.BigEndian.AppendUint32(body, width)
	body = binary.BigEndian.AppendUint32(body, height)
	body = append(body, 8, 2, 0, 0, 0)
	out := []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0d")
	out = append(out, body...)
	return binary.BigEndian.AppendUint32(out, crc32.ChecksumIEEE(body))
}

func TestBadPictures(t *testing.T) {
	photo, _ := os.ReadFile("testdata/photo.png")
	jpg, _ := os.ReadFile("testdata/photo.jpg")
	broken := bytes.Clone(photo)
	broken[len(broken)/2] ^= 0xff
	for name, c := range map[string]struct {
		content []byte
		want    string
	}{
		"empty":       {nil, "byte 0: neither a PNG nor a JPEG file"},
		"text":        {[]byte("hello"), "byte 0: neither a PNG nor a JPEG file"},
		"cut":         {photo[:len(photo)/2], "the png data is corrupt: png: invalid format: not enough pixel data"},
		"cut jpeg":    {jpg[:len(jpg)/2], "the jpeg data is corrupt: invalid JPEG format: short Huffman data"},
		"broken":      {broken, "the png data is corrupt: "},
		"petabytes":   {header(1<<31-1, 1<<31-1), "the png data is corrupt: "},
		"huge":        {header(60000, 60000), "it declares 60000 x 60000 pixels: a picture may have at most 67108864"},
		"large":       {header(8000, 8000), "truncated: 33 bytes cannot hold 8000 x 8000 pixels"},
		"jpeg's size": {[]byte("\xff\xd8\xff\xc0\x00\x11\x08\xff\xff\xff\xff\x03\x01\x22\x00\x02\x11\x01\x03\x11\x01" + strings.Repeat("\xff\xda\x00\x02", 4)), "it declares 65535 x 65535 pixels"},
	} {
		start := time.Now()
		if _, err := Decode(c.content, RGB); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v\nwant %s", name, err, c.want)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%s took %s", name, took)
		}
	}
}

// Whatever the bytes, a picture has the pixels that it says, or there is an error.
func FuzzPictures(f *testing.F) {
	for _, name := range []string{"photo.png", "photo.jpg", "photo_rgba.png", "photo_palette.png", "photo_grey.png"} {
		content, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		if info, err := Describe(bytes.NewReader(content)); err == nil && info.Width*info.Height > 1<<20 {
			return // right, but slow
		}
		p, err := Decode(content, RGB)
		if err != nil {
			return
		}
		if len(p.Bytes) != 3*p.Height*p.Width || p.Height < 1 || p.Width < 1 {
			t.Fatalf("%d bytes for %d x %d", len(p.Bytes), p.Height, p.Width)
		}
		if _, err := p.Resize(3, 5, Rect{0, 0, p.Height, p.Width}); err != nil {
			t.Fatal(err)
		}
	})
}
