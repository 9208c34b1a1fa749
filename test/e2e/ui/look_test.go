package ui

import (
	"bytes"
	"context"
	_ "embed"
	"image"
	"image/color"
	"image/png"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// contrast is what computes the contrasts of all texts.
//
//go:embed contrast.js
var contrast string

// mostBytes is how large a picture of docs/ui may be.
const mostBytes = 150 << 10

// themes are the colours that the browser prefers.
var themes = []string{"light", "dark"}

// prefer has the browser prefer colours, and motion or none.
func (b *tab) prefer(theme, motion string) {
	b.t.Helper()
	b.do(emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{
		{Name: "prefers-color-scheme", Value: theme}, {Name: "prefers-reduced-motion", Value: motion},
	}))
}

// readable checks what is seen at the moment: contrasts, names, and that nothing sticks out.
func (b *tab) readable(what string) {
	b.t.Helper()
	var seen struct {
		Count int      `json:"count"`
		Low   []string `json:"low"`
	}
	b.do(chromedp.Evaluate(strings.TrimSpace(contrast), &seen))
	if seen.Count < 10 {
		b.t.Errorf("%s: only %d texts were found", what, seen.Count)
	}
	for _, low := range seen.Low {
		b.t.Errorf("%s: contrast %s", what, low)
	}
	b.named(what)
	if wide := get[int64](b, `document.documentElement.scrollWidth - innerWidth`); wide > 0 {
		b.t.Errorf("%s: the page is %d pixels wider than the window", what, wide)
	}
}

// controls are the roles that a person uses, and landmarks those that a screen reader goes to.
var (
	controls  = []string{"button", "link", "combobox", "textbox", "listbox", "option", "image", "img", "table", "list"}
	landmarks = []string{"banner", "navigation", "search", "main", "contentinfo"}
)

// named checks that the browser's accessibility tree has a name for each control, and all landmarks.
func (b *tab) named(what string) {
	b.t.Helper()
	// The library's own type refuses what newer browsers say besides.
	var tree struct {
		Nodes []axNode `json:"nodes"`
	}
	b.do(chromedp.ActionFunc(func(ctx context.Context) error {
		return cdp.Execute(ctx, accessibility.CommandGetFullAXTree, nil, &tree)
	}))
	missing := slices.Clone(landmarks)
	found := 0
	for _, node := range tree.Nodes {
		role := node.Role.text()
		missing = slices.DeleteFunc(missing, func(l string) bool { return l == role })
		if node.Ignored || !slices.Contains(controls, role) || role == "list" || role == "table" {
			continue
		}
		found++
		if node.Name.text() == "" {
			b.t.Errorf("%s: a %s has no name (node %d)", what, role, node.DOMNode)
		}
	}
	if len(missing) > 0 || found < 5 {
		b.t.Errorf("%s: landmarks %v are missing; %d controls", what, missing, found)
	}
}

// axNode is what this test reads of a node of the accessibility tree.
type axNode struct {
	Ignored bool    `json:"ignored"`
	Role    axValue `json:"role"`
	Name    axValue `json:"name"`
	DOMNode int     `json:"backendDOMNodeId"`
}

// axValue is a value of any type.
type axValue struct {
	Value any `json:"value"`
}

// text is the value, or nothing where it is no text.
func (v axValue) text() string {
	s, _ := v.Value.(string)
	return s
}

// shown are the pictures that README.md and docs/debugging.md have.
var shown = []string{"crew-light", "start-dark", "start-light", "why-light"}

// picture takes a picture of the page, into docs/ui too if UPDATE is set and a document shows it.
func (b *tab) picture(name string) {
	b.t.Helper()
	b.keep(name)
	if os.Getenv("UPDATE") != "" && slices.Contains(shown, name) {
		b.take(filepath.Join("..", "..", "..", "docs", "ui", name+".png"))
	}
}

// keep takes a picture into the directory that PICTURES names, for whoever works on the page.
func (b *tab) keep(name string) {
	b.t.Helper()
	if dir := os.Getenv("PICTURES"); dir != "" {
		b.take(filepath.Join(dir, name+".png"))
	}
}

func (b *tab) take(path string) {
	b.t.Helper()
	var shot []byte
	b.do(chromedp.ActionFunc(func(ctx context.Context) (err error) {
		shot, err = page.CaptureScreenshot().Do(ctx)
		return err
	}))
	small, err := fewColours(shot)
	if err != nil {
		b.t.Fatal(err)
	}
	if len(small) > mostBytes {
		b.t.Errorf("the picture %s has %d bytes, want at most %d", path, len(small), mostBytes)
	}
	if err := os.WriteFile(path, small, 0o644); err != nil {
		b.t.Fatal(err)
	}
}

// fewColours is the PNG with its 256 most frequent colours only, which takes a third of the bytes.
func fewColours(shot []byte) ([]byte, error) {
	from, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		return nil, err
	}
	count := map[color.Color]int{}
	bounds := from.Bounds()
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			count[from.At(x, y)]++
		}
	}
	often := slices.SortedFunc(maps.Keys(count), func(a, b color.Color) int { return count[b] - count[a] })
	to := image.NewPaletted(bounds, color.Palette(often[:min(len(often), 256)]))
	nearest := make(map[color.Color]uint8, len(count))
	for c := range count {
		nearest[c] = uint8(to.Palette.Index(c))
	}
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			to.SetColorIndex(x, y, nearest[from.At(x, y)])
		}
	}
	var small bytes.Buffer
	err = (&png.Encoder{CompressionLevel: png.BestCompression}).Encode(&small, to)
	return small.Bytes(), err
}

// inEachTheme runs a check in dark and in light.
func (b *tab) inEachTheme(t *testing.T, check func(theme string)) {
	t.Helper()
	for _, theme := range themes {
		b.prefer(theme, "no-preference")
		check(theme)
	}
	b.prefer("light", "no-preference")
}
