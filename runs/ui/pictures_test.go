package ui

import (
	"bytes"
	"image"
	"image/color"
	"image/draw"
	"image/png"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// TestPictures makes the pictures of docs/ui.md in $DRUN_TEST_PICTURES (make ui-pictures): of every page, 1,500 and 420 pixels wide, light
// and dark.
func TestPictures(t *testing.T) {
	to := os.Getenv("DRUN_TEST_PICTURES")
	if to == "" {
		t.Skip("make ui-pictures runs it")
	}
	dir := place(t)
	var out bytes.Buffer
	err := sh(t, dir, `set -e
drun run examples/digits.star -n 2 --name base
drun sweep examples/spiral.star -p lr=0.003,0.01,0.03 -p hidden=16,64 -p arms=3,5 --minimize loss --tag spiral
drun run examples/cnn.star -n 2 -p epochs=8 --name cnn
cat > kept.star <<'END'
def main():
    weights = tensor.randn([500])
    for step in range(300):
        run.histogram("weights", weights * (1 + step / 100.0) + step / 50.0, step = step)
        run.log(step = step, loss = 1.0 / (step + 1))
END
drun run kept.star --name kept
`, &out).Wait()
	if err != nil {
		t.Fatal(err, out.String())
	}
	hang := filepath.Join(dir, "hang.star")
	if err := os.WriteFile(hang, []byte(recipeOf(t, "## What each rank is doing")), 0o600); err != nil {
		t.Fatal(err)
	}
	sh(t, dir, "exec drun run hang.star -n 3 --name hang", new(bytes.Buffer))
	p := browseFor(t, serve(t, filepath.Join(dir, ".drun")), 4*time.Minute)
	p.until("document.querySelector('#rows .s-running')")
	c, base := client(t, serve(t, filepath.Join(dir, ".drun")))
	_, sweeps, _ := get(t, c, base+"/api/v1/sweeps")
	sweep := regexp.MustCompile(`"name":"(sweep-[^"]*)"`).FindStringSubmatch(sweeps)
	if sweep == nil {
		t.Fatal(sweeps)
	}
	for name, page := range map[string]struct{ path, there string }{
		"runs":      {"/?where=status+%3D%3D+%22done%22", "document.querySelectorAll('#charts canvas').length > 1"},
		"table":     {"/?view=table", "document.querySelectorAll('svg.spark path').length > 20"},
		"run":       {"/run.html?id=cnn", "document.querySelectorAll('#charts canvas').length === 2"},
		"overview":  {"/run.html?id=cnn&tab=overview", "document.querySelectorAll('#params tr').length > 3"},
		"hang":      {"/run.html?id=hang&tab=ranks", "document.querySelectorAll('#doing tr.long').length === 2 && document.querySelectorAll('#marked .who').length === 2"},
		"histogram": {"/run.html?id=kept&tab=kept", "document.querySelectorAll('.bars rect').length > 0"},
		"compare":   {"/compare.html?run=2&run=3", "document.getElementById('firstdiff').innerText !== '' && document.querySelectorAll('#table td').length > 3"},
		"sweep":     {"/sweep.html?name=" + sweep[1], "document.querySelectorAll('#sweep .line').length === 12"},
	} {
		for suffix, width := range map[string]int64{"": 1500, "-narrow": 420} {
			for end, scheme := range map[string]string{"": "light", "-dark": "dark"} {
				params := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}
				if _, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, params); err != nil {
					t.Fatal(err)
				}
				p.do(chromedp.EmulateViewport(width, map[int64]int64{1500: 820, 420: 800}[width]))
				p.open(page.path)
				p.until(page.there)
				p.until("new Promise(done => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(() => done(true))), 300))") // charts have their places
				raw, err := chromedp.Run(p.ctx, chromedp.CaptureScreenshot())
				if err != nil {
					t.Fatal(err)
				}
				if name != "histogram" { // a heat map has too many colours
					if raw, err = smaller(raw); err != nil {
						t.Fatal(err)
					}
				}
				if err := os.WriteFile(filepath.Join(to, "ui-"+name+suffix+end+".png"), raw, 0o644); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
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
