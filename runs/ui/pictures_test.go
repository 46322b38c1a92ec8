package ui

import (
	"bytes"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestPictures makes the pictures of docs/ui.md in $DRUN_TEST_PICTURES (make ui-pictures): of runs of the examples, as
// a reader of the document has them.
func TestPictures(t *testing.T) {
	to := os.Getenv("DRUN_TEST_PICTURES")
	if to == "" {
		t.Skip("make ui-pictures runs it")
	}
	dir := place(t)
	var out bytes.Buffer
	err := sh(t, dir, `set -e
for lr in 0.003 0.01 0.03; do
    for hidden in 16 64; do drun run examples/spiral.star -p lr=$lr -p hidden=$hidden --tag spiral; done
done
drun run examples/digits.star -n 2
drun run examples/cnn.star -n 2 -p epochs=8 --name cnn
`, &out).Wait()
	if err != nil {
		t.Fatal(err, out.String())
	}
	hang := filepath.Join(dir, "hang.star")
	if err := os.WriteFile(hang, []byte(recipeOf(t, "## What each rank is doing")), 0o600); err != nil {
		t.Fatal(err)
	}
	sh(t, dir, "exec drun run hang.star -n 3 --name hang", new(bytes.Buffer))
	p := browse(t, serve(t, filepath.Join(dir, ".drun")))
	picture := func(name string, width, height int64) {
		t.Helper()
		p.do(chromedp.EmulateViewport(width, height))
		p.until("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
		raw, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
		if err != nil {
			t.Fatal(err)
		}
		if raw, err = smaller(raw); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, "ui-"+name+".png"), raw, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p.until("document.querySelectorAll('#rows tr').length === 9 && document.querySelector('#rows .s-running')")
	picture("runs", 1100, 420)
	p.run("[...document.querySelectorAll('#rows tr')].filter(r => r.innerText.includes('spiral')).slice(0, 3).forEach(r => r.querySelector('input').click())")
	p.do(chromedp.Click("#compare"))
	p.until("document.querySelectorAll('#charts canvas').length === 2 && document.querySelectorAll('#table tbody tr').length > 0")
	picture("compare", 1100, 560)
	p.open("/run.html?tab=all&id=cnn")
	p.until("document.querySelectorAll('#charts canvas').length === 2 && document.querySelectorAll('#params tr').length > 0")
	picture("run", 1100, 720)
	p.open("/run.html?tab=all&id=hang")
	p.until("document.querySelectorAll('#doing tr.long').length === 2 && document.querySelectorAll('#marked .who').length === 2")
	p.run("document.getElementById('ranks').scrollIntoView()")
	picture("hang", 1240, 330)
}

// smaller is the same picture with at most 256 colours: the most frequent ones, and for others the nearest of them.
func smaller(raw []byte) ([]byte, error) {
	from, err := png.Decode(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	found := map[color.RGBA]int{}
	for y := range from.Bounds().Dy() {
		for x := range from.Bounds().Dx() {
			found[color.RGBAModel.Convert(from.At(x, y)).(color.RGBA)]++
		}
	}
	var all []color.RGBA
	for c := range found {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b color.RGBA) int { return found[b] - found[a] })
	palette := color.Palette{}
	for _, c := range all[:min(256, len(all))] {
		palette = append(palette, c)
	}
	to := image.NewPaletted(from.Bounds(), palette)
	draw.Draw(to, to.Bounds(), from, image.Point{}, draw.Src)
	var out bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&out, to)
	return out.Bytes(), err
}
