package debugpage

import (
	"math"
	"strconv"
	"strings"
)

// A chart shows a value of each bin.
type chart struct {
	Name     string    `json:"name"`
	Unit     string    `json:"unit"`
	BinWidth float64   `json:"bin_s"`
	Values   []float64 `json:"values"` // oldest first
}

// Size of the plot in units of its viewBox.
const (
	chartWidth  = 600
	chartHeight = 100
)

// charts returns the charts of the bins.
func charts(bins []bin) []chart {
	sent := chart{Name: "Sent", Unit: "requests per second"}
	throttled := chart{Name: "Throttled", Unit: "responses per second"}
	waited := chart{Name: "Waited", Unit: "seconds, longest wait that ended"}
	for _, b := range bins {
		sent.Values = append(sent.Values, float64(b.sent)/binWidth.Seconds())
		throttled.Values = append(throttled.Values, float64(b.throttled)/binWidth.Seconds())
		waited.Values = append(waited.Values, seconds(b.longestWait))
	}
	all := []chart{sent, throttled, waited}
	for i := range all {
		all[i].BinWidth = binWidth.Seconds()
	}
	return all
}

// Class returns the CSS class of the chart.
func (c chart) Class() string { return strings.ToLower(c.Name) }

// Latest returns the latest value.
func (c chart) Latest() string { return decimal(c.Values[len(c.Values)-1]) }

// Max returns the largest value.
func (c chart) Max() string { return decimal(c.max()) }

func (c chart) max() (most float64) {
	for _, v := range c.Values {
		most = max(most, v)
	}
	return most
}

// Top returns the value at the upper edge of the plot.
func (c chart) Top() string { return decimal(c.top()) }

// top returns 1, 2 or 5 times a power of ten that is not below the largest value.
func (c chart) top() float64 {
	most := c.max()
	if most <= 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(most)))
	for _, n := range []float64{1, 2, 5, 10} {
		if n*power >= most {
			return n * power
		}
	}
	return 10 * power
}

// Line returns the path of an SVG that shows the values as steps.
func (c chart) Line() string {
	path := make([]byte, 0, 1024)
	top, width := c.top(), float64(chartWidth)/float64(len(c.Values))
	var last float64
	for i, v := range c.Values {
		y := chartHeight - chartHeight*v/top
		switch {
		case i == 0:
			path = appendCoordinate(append(path, "M0 "...), y)
		case y != last:
			path = appendCoordinate(append(path, 'H'), float64(i)*width)
			path = appendCoordinate(append(path, 'V'), y)
		}
		last = y
	}
	path = append(path, 'H')
	return string(appendCoordinate(path, chartWidth))
}

// Area returns the path of the area below Line.
func (c chart) Area() string {
	bottom := strconv.Itoa(chartHeight)
	return c.Line() + "V" + bottom + "H0Z"
}

func appendCoordinate(path []byte, v float64) []byte {
	return strconv.AppendFloat(path, math.Round(v*10)/10, 'f', -1, 64)
}
