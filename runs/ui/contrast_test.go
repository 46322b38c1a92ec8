package ui

import (
	"math"
	"os"
	"regexp"
	"strconv"
	"testing"
)

// Each theme's colours are told from its backgrounds: those of curves three to one, of texts four and a half to one (WCAG 2.2).
func TestContrast(t *testing.T) {
	css, err := os.ReadFile("assets/drun.css")
	if err != nil {
		t.Fatal(err)
	}
	pairs := regexp.MustCompile(`--(\w+): light-dark\(#([0-9a-f]{6}), #([0-9a-f]{6})\)`).FindAllSubmatch(css, -1)
	if len(pairs) < 20 {
		t.Fatalf("%d colours", len(pairs))
	}
	luminance := func(hex string) (sum float64) {
		for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
			n, err := strconv.ParseUint(hex[2*i:2*i+2], 16, 8)
			if err != nil {
				t.Fatal(err)
			}
			c := float64(n) / 255
			if c <= 0.04045 {
				sum += weight * c / 12.92
			} else {
				sum += weight * math.Pow((c+0.055)/1.055, 2.4)
			}
		}
		return sum
	}
	for i, theme := range []string{"light", "dark"} {
		colours := map[string]string{}
		for _, m := range pairs {
			colours[string(m[1])] = string(m[2+i])
		}
		check := func(name string, least float64, backs ...string) {
			for _, back := range backs {
				a, b := luminance(colours[name]), luminance(colours[back])
				if ratio := (max(a, b) + 0.05) / (min(a, b) + 0.05); ratio < least {
					t.Errorf("the %s theme: --%s on --%s has the contrast %.2f, want %.1f", theme, name, back, ratio, least)
				}
			}
		}
		for k := range 10 {
			check("c"+strconv.Itoa(k), 3, "back", "panel")
		}
		for _, name := range []string{"fore", "soft", "link", "good", "bad", "busy", "odd"} {
			check(name, 4.5, "back", "panel")
		}
		check("fore", 4.5, "add", "del", "mark", "hover", "raised")
		check("on", 4.5, "accent")
		check("soft", 4.5, "hover", "raised")
		check("busy", 4.5, "mark")
	}
}
