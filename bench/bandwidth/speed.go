package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"time"

	"github.com/heed-go/heed/bench"
)

// plenty is a limit in bytes per second that never binds.
const plenty = 1e15

// measureSpeed compares each work with and without pacing by a limit that never binds. The
// work "server, file" sends a file, which net/http leaves to the system.
func measureSpeed(rounds int, sample time.Duration, show func(row)) error {
	for _, w := range works {
		run := func(c contender) (float64, error) {
			var end time.Time
			l := newLink(w, c, plenty, &end)
			defer l.close()
			end = time.Now().Add(sample)
			n, err := l.transfer(w.upload, 32<<10, end)
			return float64(n) / sample.Seconds() / 1e6, err
		}
		if err := compare(w.name, rounds, run, show); err != nil {
			return err
		}
	}
	path, err := bigFile()
	if err != nil {
		return err
	}
	defer os.Remove(path)
	return compare("server, file", rounds, func(c contender) (float64, error) { return sendFiles(c, path, sample) }, show)
}

// compare runs all contenders by turns and shows the medians, as ratios to the plain ones of
// the same round.
func compare(name string, rounds int, run func(contender) (float64, error), show func(row)) error {
	all := append([]contender{{name: "plain"}}, contenders...)
	speeds, ratios, cpuRatios := make([][]float64, len(all)), make([][]float64, len(all)), make([][]float64, len(all))
	for range rounds {
		var plain, plainCPU float64
		for i, c := range all {
			begin, cpu := time.Now(), bench.ProcessorTime()
			v, err := run(c)
			if err != nil {
				return err
			}
			perCPU := v * time.Since(begin).Seconds() / (bench.ProcessorTime() - cpu).Seconds()
			if i == 0 {
				plain, plainCPU = v, perCPU
			}
			speeds[i] = append(speeds[i], v)
			ratios[i] = append(ratios[i], v/plain)
			cpuRatios[i] = append(cpuRatios[i], perCPU/plainCPU)
		}
	}
	for i, c := range all {
		show(row{Measurement: "speed", Work: name, Contender: c.name, MBPerSecond: median(speeds[i]), Ratio: median(ratios[i]), CPURatio: median(cpuRatios[i])})
	}
	return nil
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}

// bigFile returns the path of a file of 64 MiB.
func bigFile() (string, error) {
	f, err := os.CreateTemp("", "bandwidth")
	if err != nil {
		return "", err
	}
	defer f.Close()
	_, err = f.Write(make([]byte, 64<<20))
	return f.Name(), err
}

// sendFiles downloads the file at path again and again, and returns MB/s.
func sendFiles(c contender, path string, sample time.Duration) (float64, error) {
	h := http.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, path) }))
	if c.server != nil {
		h = c.server(h, plenty, false)
	}
	s := httptest.NewServer(h)
	defer s.Close()
	begin, buf := time.Now(), make([]byte, 256<<10)
	var n int64
	for time.Since(begin) < sample {
		resp, err := s.Client().Get(s.URL)
		if err != nil {
			return 0, err
		}
		m, err := io.CopyBuffer(io.Discard, struct{ io.Reader }{resp.Body}, buf)
		resp.Body.Close()
		if err != nil {
			return 0, err
		}
		n += m
	}
	return float64(n) / time.Since(begin).Seconds() / 1e6, nil
}
