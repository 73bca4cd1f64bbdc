package dashboard

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/promql"
)

// A line is one line of a panel.
type line struct {
	legend string
	points []promql.FPoint
}

// Sizes of the picture in pixels.
const (
	columns            = 3
	cellWidth          = 420
	cellHeight         = 250
	plotLeft, plotTop  = 52, 40
	plotWidth          = cellWidth - plotLeft - 20
	plotHeight         = 130
	legendTop          = plotTop + plotHeight + 34
	maxLegends         = 6
	lineHeight         = 14
	legendColumnWidth  = 195
	legendMaxCharacter = 30
)

var colors = []string{"#4477aa", "#cc6677", "#228833", "#aa7700", "#66508f", "#117777", "#999999"}

const style = `<style>
text{font:11px system-ui,sans-serif;fill:#24292f}.t{font-size:13px;font-weight:600}.g{stroke:#d0d7de}.c{fill:#ffffff;stroke:#d0d7de}.b{fill:#f6f8fa}.f{fill:#cc6677;opacity:.08}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.g{stroke:#30363d}.c{fill:#161b22;stroke:#30363d}.b{fill:#0d1117}}
</style>
`

// draw returns the panels as an SVG.
func draw(panels []panel, results [][]line, start time.Time) []byte {
	var b bytes.Buffer
	rows := (len(panels) + columns - 1) / columns
	w, h := columns*cellWidth+10, rows*cellHeight+10
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="The heed dashboard: a load of 40 minutes with faults from minute 10 to 30">`, w, h)
	b.WriteString(style)
	fmt.Fprintf(&b, `<rect class="b" width="%d" height="%d"/>`+"\n", w, h)
	for i, p := range panels {
		fmt.Fprintf(&b, `<g transform="translate(%d %d)">`, 5+i%columns*cellWidth, 5+i/columns*cellHeight)
		drawPanel(&b, p, results[i], start)
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func drawPanel(b *bytes.Buffer, p panel, lines []line, start time.Time) {
	fmt.Fprintf(b, `<rect class="c" x="4" y="4" width="%d" height="%d" rx="4"/><text class="t" x="14" y="24">%s</text>`, cellWidth-8, cellHeight-8, html.EscapeString(p.Title))
	top := scaleOf(lines)
	x := func(d time.Duration) float64 { return plotLeft + plotWidth*d.Minutes()/duration.Minutes() }
	y := func(v float64) float64 { return plotTop + plotHeight*(1-v/top) }
	fmt.Fprintf(b, `<rect class="f" x="%.1f" y="%d" width="%.1f" height="%d"/>`, x(faultStart), plotTop, x(faultEnd)-x(faultStart), plotHeight)
	for i := range 5 {
		v := top * float64(i) / 4
		fmt.Fprintf(b, `<line class="g" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/><text x="%d" y="%.1f" text-anchor="end">%s</text>`,
			plotLeft, plotLeft+plotWidth, y(v), y(v), plotLeft-5, y(v)+4, format(v, p.FieldConfig.Defaults.Unit))
	}
	for m := 0; m <= int(duration.Minutes()); m += 10 {
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%d min</text>`, x(time.Duration(m)*time.Minute), plotTop+plotHeight+16, m)
	}
	for i, l := range lines {
		fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s" stroke-width="1.6"/>`, pathOf(l, start, x, y), colors[i%len(colors)])
		if i < maxLegends {
			drawLegend(b, i, l.legend)
		}
	}
}

func drawLegend(b *bytes.Buffer, i int, text string) {
	x, y := 14+i%2*legendColumnWidth, legendTop+i/2*lineHeight
	if len(text) > legendMaxCharacter {
		text = text[:legendMaxCharacter-1] + "…"
	}
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="10" height="3" fill="%s"/><text x="%d" y="%d">%s</text>`, x, y-5, colors[i%len(colors)], x+14, y, html.EscapeString(text))
}

// scaleOf returns the highest value of the vertical axis.
func scaleOf(lines []line) float64 {
	most := 0.0
	for _, l := range lines {
		for _, p := range l.points {
			if !math.IsNaN(p.F) && !math.IsInf(p.F, 0) {
				most = max(most, p.F)
			}
		}
	}
	if most == 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(most)))
	for _, f := range []float64{1, 2, 4, 8, 10} {
		if most <= f*unit {
			return f * unit
		}
	}
	return most
}

// pathOf returns the path of a line, with gaps where there is no value.
func pathOf(l line, start time.Time, x func(time.Duration) float64, y func(float64) float64) string {
	var d strings.Builder
	last := int64(-1)
	for _, p := range l.points {
		if math.IsNaN(p.F) || math.IsInf(p.F, 0) {
			continue
		}
		command := "L"
		if last < 0 || p.T-last > interval.Milliseconds() {
			command = "M"
		}
		last = p.T
		fmt.Fprintf(&d, "%s%.1f %.1f", command, x(time.Duration(p.T-start.UnixMilli())*time.Millisecond), y(p.F))
	}
	return d.String()
}

// format returns a value of the vertical axis.
func format(v float64, unit string) string {
	switch unit {
	case "percentunit":
		return strconv.FormatFloat(100*v, 'g', 3, 64) + " %"
	case "s":
		if v >= 1000 { // without an exponent
			return strconv.FormatFloat(v, 'f', 0, 64) + " s"
		}
		return strconv.FormatFloat(v, 'g', 3, 64) + " s"
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
