package chart

import (
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"

	"kubelot.dev/test/bench/report"
)

// category is a group of bars, one for each subject.
type category struct {
	title string
	keys  []string // of the figures whose sum is shown
	scale float64  // of a figure to the chart's unit
}

// grouped draws the medians of the categories, the first on top.
func grouped(r report.Report, title, format string, categories []category) (panel, error) {
	var subjects []string
	for _, s := range report.Subjects {
		for _, c := range categories {
			if r.Of(s, c.keys...).Rounds > 0 {
				subjects = append(subjects, s)
				break
			}
		}
	}
	if len(subjects) == 0 {
		return panel{}, nil
	}
	p := newPanel(title, float64(len(categories)*(len(subjects)+1)))
	var names []string
	for i := range categories {
		names = append(names, categories[len(categories)-1-i].title)
	}
	p.NominalY(names...)
	for i, s := range subjects {
		offset := row * vg.Length(float64(len(subjects)-1)/2-float64(i))
		if err := p.series(r, s, categories, format, offset); err != nil {
			return p, err
		}
	}
	p.Legend.Top, p.Legend.Padding = false, vg.Millimeter
	p.X.Max *= 1.3 // for the value next to the longest bar, and for the legend
	return p, nil
}

// series adds the bars of one subject.
func (p panel) series(r report.Report, subject string, categories []category, format string, offset vg.Length) error {
	values := make(plotter.Values, len(categories))
	labels := plotter.XYLabels{}
	for i := range categories {
		c := categories[len(categories)-1-i]
		figure := r.Of(subject, c.keys...)
		if figure.Rounds == 0 {
			continue
		}
		values[i] = figure.Median * c.scale
		labels.XYs = append(labels.XYs, plotter.XY{X: values[i], Y: float64(i)})
		labels.Labels = append(labels.Labels, fmt.Sprintf(format, values[i]))
		p.X.Max = math.Max(p.X.Max, values[i])
	}
	bars, err := plotter.NewBarChart(values, row*0.85)
	if err != nil {
		return err
	}
	bars.Horizontal, bars.Offset, bars.Color, bars.Width = true, offset, colours[subject], row*0.85
	bars.LineStyle.Width = 0
	p.Add(bars)
	p.Legend.Add(subject, bars)
	return p.values(labels, offset)
}

// values adds text next to bars that stand off the axis' positions by offset.
func (p panel) values(at plotter.XYLabels, offset vg.Length) error {
	if len(at.XYs) == 0 {
		return nil
	}
	labels, err := plotter.NewLabels(at)
	if err != nil {
		return err
	}
	labels.Offset = vg.Point{X: vg.Millimeter / 2, Y: offset + vg.Millimeter/4}
	for i := range labels.TextStyle {
		sans(&labels.TextStyle[i])
		labels.TextStyle[i].Font.Size = 9
		labels.TextStyle[i].YAlign = text.YCenter
	}
	p.Add(labels)
	return nil
}

// shades are for the parts of a stacked bar, in their order: neighbours differ, and each can be told from black
// and from white.
var shades = []color.Color{
	color.NRGBA{0xe0, 0x7b, 0x39, 0xff},
	color.NRGBA{0x4f, 0xa3, 0xc7, 0xff},
	color.NRGBA{0xd1, 0xa2, 0x2f, 0xff},
	color.NRGBA{0xb3, 0x6f, 0xd1, 0xff},
	color.NRGBA{0x7d, 0x9a, 0x3c, 0xff},
	color.NRGBA{0xd4, 0x5d, 0x79, 0xff},
	color.NRGBA{0x2f, 0xa3, 0xa0, 0xff},
	color.NRGBA{0xa8, 0x6b, 0x4c, 0xff},
	color.NRGBA{0x6c, 0x78, 0xc9, 0xff},
	color.NRGBA{0xc7, 0x8f, 0xb0, 0xff},
	color.NRGBA{0x5f, 0x8d, 0x6e, 0xff},
	color.NRGBA{0xb9, 0x9b, 0x6b, 0xff},
}
