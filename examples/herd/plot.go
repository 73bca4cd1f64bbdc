package main

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A theme has the colors of a plot for a light or a dark page.
type theme struct {
	name                             string
	text, grid, arrived, served, max color.Color
}

var themes = []theme{
	{"light", gray(0x40), gray(0xdd), color.NRGBA{0xd9, 0x72, 0x2a, 0xff}, color.NRGBA{0x1f, 0x7a, 0x8c, 0xff}, gray(0x55)},
	{"dark", gray(0xc4), gray(0x3a), color.NRGBA{0xf0, 0x93, 0x4e, 0xff}, color.NRGBA{0x4f, 0xb6, 0xc8, 0xff}, gray(0xb0)},
}

func gray(v uint8) color.Color { return color.NRGBA{v, v, v, 0xff} }

const (
	plotWidth   = 9 * vg.Inch
	panelHeight = 0.8 * vg.Inch
	titleHeight = 13 // of a panel, in points
	bins        = 240
)

// writePlots writes the plot of a scenario to folder, once for each theme.
func writePlots(folder string, results []result) error {
	for _, t := range themes {
		svg, err := t.plot(results)
		if err != nil {
			return err
		}
		file := filepath.Join(folder, results[0].scenario.name+"-"+t.name+".svg")
		if err := os.WriteFile(file, svg, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// plot returns an SVG with one panel for each strategy.
func (t theme) plot(results []result) ([]byte, error) {
	canvas := vgsvg.New(plotWidth, panelHeight*vg.Length(len(results)))
	var panels [][]*plot.Plot
	for i, r := range results {
		p, err := t.panel(r, i == len(results)-1)
		if err != nil {
			return nil, err
		}
		panels = append(panels, []*plot.Plot{p})
	}
	tiles := draw.Tiles{Rows: len(panels), Cols: 1, PadY: 6, PadTop: 4, PadBottom: 2, PadRight: 10, PadLeft: 2}
	for i, cell := range plot.Align(panels, tiles, draw.New(canvas)) {
		panels[i][0].Draw(draw.Crop(cell[0], 0, 0, 0, -titleHeight))
		r, corner := results[i], vg.Point{X: cell[0].Min.X, Y: cell[0].Max.Y}
		cell[0].FillText(t.textStyle(10), corner, fmt.Sprintf("%s: %s requests, later peak %s in %v", r.strategy,
			thousands(len(r.arrivals)), thousands(r.laterPeak()), peakInterval))
	}
	var svg bytes.Buffer
	if _, err := canvas.WriteTo(&svg); err != nil {
		return nil, err
	}
	// Few readers have the Liberation fonts; Arial has the same metrics.
	return bytes.ReplaceAll(svg.Bytes(), []byte("font-family:Liberation Sans;"), []byte("font-family:Liberation Sans,Arial,Helvetica,sans-serif;")), nil
}

// panel plots the requests per second that arrived and that were served.
func (t theme) panel(r result, last bool) (*plot.Plot, error) {
	p := plot.New()
	p.BackgroundColor = color.Transparent
	span := r.scenario.downtime + patience
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, span.Seconds(), 0, logScale(100_000)
	p.Y.Tick.Marker = plot.ConstantTicks{{Value: 0, Label: "0"}, {Value: logScale(100), Label: "100"}, {Value: logScale(10_000), Label: "10,000"}}
	p.X.Tick.Marker, p.X.Tick.Length = plot.ConstantTicks{}, 0
	if last {
		p.X.Tick.Marker = everyTen(span)
		p.X.Label.Text = "seconds since the clients woke. Vertical: requests per second, blue: served, orange: rejected, dashed: capacity of the server"
	}
	t.style(p)

	all, served := r.rates(span)
	for _, area := range []struct {
		rates plotter.XYs
		color color.Color
	}{{all, t.arrived}, {served, t.served}} {
		polygon, err := plotter.NewPolygon(area.rates)
		if err != nil {
			return nil, err
		}
		polygon.Color, polygon.LineStyle.Width = area.color, 0
		p.Add(polygon)
	}
	rate, _ := capacity(r.clients)
	limit, err := plotter.NewLine(plotter.XYs{{X: 0, Y: logScale(float64(rate))}, {X: span.Seconds(), Y: logScale(float64(rate))}})
	if err != nil {
		return nil, err
	}
	limit.Color, limit.Width, limit.Dashes = t.max, 0.75, []vg.Length{3, 3}
	p.Add(limit)
	return p, nil
}

func (t theme) style(p *plot.Plot) {
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Color, axis.Tick.Color = t.grid, t.grid
		axis.Label.TextStyle.Color, axis.Tick.Label.Color = t.text, t.text
		axis.Label.TextStyle.Font, axis.Tick.Label.Font = sans(9), sans(8)
		axis.Padding = 0
	}
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = t.grid, nil
	p.Add(grid)
}

func sans(size vg.Length) font.Font {
	return font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
}

func (t theme) textStyle(size vg.Length) draw.TextStyle {
	return draw.TextStyle{Color: t.text, Font: sans(size), XAlign: draw.XLeft, YAlign: draw.YTop, Handler: plot.DefaultTextHandler}
}

func everyTen(span time.Duration) (ticks plot.ConstantTicks) {
	for s := 0; s <= int(span.Seconds()); s += 10 {
		ticks = append(ticks, plot.Tick{Value: float64(s), Label: strconv.Itoa(s)})
	}
	return ticks
}

// rates returns the outlines of the requests per second that arrived and that were served.
func (r result) rates(span time.Duration) (all, served plotter.XYs) {
	var counts, servedCounts [bins]int
	width := span / bins
	for _, a := range r.arrivals {
		if i := a.at / width; i < bins {
			counts[i]++
			if a.served {
				servedCounts[i]++
			}
		}
	}
	return outline(counts, width), outline(servedCounts, width)
}

// outline returns the steps of the counts, without points within a horizontal line.
func outline(counts [bins]int, width time.Duration) plotter.XYs {
	points, last := plotter.XYs{{}}, 0.0
	for i, n := range counts {
		x, y := (width * time.Duration(i)).Seconds(), logScale(float64(n)/width.Seconds())
		if y != last {
			points = append(points, plotter.XY{X: x, Y: last}, plotter.XY{X: x, Y: y})
			last = y
		}
	}
	end := (width * bins).Seconds()
	return append(points, plotter.XY{X: end, Y: last}, plotter.XY{X: end})
}

// logScale is a logarithm that is zero at zero.
func logScale(rate float64) float64 { return math.Log10(1 + rate) }

// thousands returns n with commas.
func thousands(n int) string {
	if n < 1000 {
		return strconv.Itoa(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}
