// Package chart draws the benchmark's result as SVG: on no background and in colours that can be read on a light
// and on a dark page.
//
// Reads: nothing but its arguments. Writes: the files of Write. Owns: nothing.
//
// Guarantees: a bar is drawn for what was measured only; each bar has its value next to it.
package chart

import (
	"errors"
	"fmt"
	"image/color"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"kubelot.dev/test/bench/report"
)

// Files are the names of the charts that Write makes.
var Files = []string{"memory.svg", "latency.svg", "cpu.svg"}

// Write draws all charts into the directory, and removes those for which nothing was measured.
func Write(dir string, r report.Report) error {
	sheets := []func(report.Report) ([]panel, error){memory, latency, cpu}
	var errs []error
	for i, sheet := range sheets {
		path := filepath.Join(dir, Files[i])
		panels, err := sheet(r)
		switch {
		case err != nil:
		case len(panels) > 0:
			err = save(path, panels)
		default: // an earlier result's chart would pass for this one's
			if err = os.Remove(path); errors.Is(err, fs.ErrNotExist) {
				err = nil
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("draw %s: %w", Files[i], err))
		}
	}
	return errors.Join(errs...)
}

// ink is for text and lines: of a medium grey, for either background.
var ink = color.NRGBA{0x76, 0x83, 0x90, 0xff}

// colours of the subjects.
var colours = map[string]color.Color{
	report.Baseline: color.NRGBA{0xb0, 0xb5, 0xba, 0xff},
	report.Hollow:   color.NRGBA{0x8a, 0x8f, 0x98, 0xff},
	report.Kubelet:  color.NRGBA{0x4a, 0x82, 0xe0, 0xff},
	report.Kubelot:  color.NRGBA{0xe0, 0x7b, 0x39, 0xff},
	report.Compact:  color.NRGBA{0x3f, 0xa0, 0x6a, 0xff},
}

// panel is a plot with the room it needs.
type panel struct {
	*plot.Plot
	height vg.Length
}

const (
	width  = 24 * vg.Centimeter
	border = 3 * vg.Millimeter
	row    = 5.5 * vg.Millimeter // of one bar
	frame  = 18 * vg.Millimeter  // title and axis
)

// newPanel is an empty panel with a title, for so many rows of bars.
func newPanel(title string, rows float64) panel {
	p := panel{plot.New(), frame + vg.Length(rows)*row}
	p.BackgroundColor = nil
	p.Title.Text = title
	p.Title.Padding = 2 * vg.Millimeter
	p.X.Min = 0
	for _, style := range []*draw.TextStyle{
		&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle,
	} {
		sans(style)
	}
	p.Title.TextStyle.Font.Size = 12
	for _, line := range []*draw.LineStyle{&p.X.LineStyle, &p.Y.LineStyle, &p.X.Tick.LineStyle, &p.Y.Tick.LineStyle} {
		line.Color = ink
	}
	p.Y.Tick.Length = 0
	p.X.Tick.Marker = plot.TickerFunc(ticks)
	return p
}

// ticks are the usual ones, without zeros behind the point.
func ticks(low, high float64) []plot.Tick {
	marks := plot.DefaultTicks{}.Ticks(low, high)
	for i := range marks {
		if marks[i].Label != "" {
			marks[i].Label = strconv.FormatFloat(marks[i].Value, 'g', 4, 64)
		}
	}
	return marks
}

// sans gives the text the chart's colour and a typeface without serifs.
func sans(style *draw.TextStyle) {
	style.Color = ink
	style.Font.Variant = "Sans"
	style.Font.Size = 10
}

// save writes panels one below the other.
func save(path string, panels []panel) error {
	height := border
	for _, p := range panels {
		height += p.height + border
	}
	canvas := vgsvg.New(width, height)
	top := height
	for _, p := range panels {
		box := vg.Rectangle{
			Min: vg.Point{X: border, Y: top - p.height - border}, Max: vg.Point{X: width - border, Y: top - border},
		}
		p.Draw(draw.Canvas{Canvas: canvas, Rectangle: box})
		top -= p.height + border
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = canvas.WriteTo(file)
	return errors.Join(err, file.Close())
}
