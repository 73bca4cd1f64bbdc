package dashboard

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/promheed"
	"github.com/heed-go/heed/throttle"
)

const (
	dashboardFile = "../../promheed/dashboard/grafana.json"
	alertsFile    = "../../promheed/dashboard/alerts.yaml"
	pictureFile   = "../../docs/dashboard.svg"
)

// A panel is a panel of the dashboard.
type panel struct {
	Type, Title string
	FieldConfig struct {
		Defaults struct{ Unit string }
	}
	Targets []struct{ Expr, LegendFormat string }
}

func readPanels(t *testing.T) []panel {
	text, err := os.ReadFile(dashboardFile)
	require.NoError(t, err)
	var d struct {
		SchemaVersion int
		Panels        []panel
	}
	require.NoError(t, json.Unmarshal(text, &d))
	require.Positive(t, d.SchemaVersion)
	return slices.DeleteFunc(d.Panels, func(p panel) bool { return p.Type == "row" })
}

func readAlerts(t *testing.T) []rulefmt.Rule {
	groups, problems := rulefmt.ParseFile(alertsFile, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
	require.Empty(t, problems)
	require.Len(t, groups.Groups, 1)
	return groups.Groups[0].Rules
}

// expression returns an expression with values for the variables of Grafana.
func expression(expr string) string {
	return strings.NewReplacer("$__rate_interval", "1m", "$server", ".*", "$job", ".*", "$instance", ".*").Replace(expr)
}

// evaluate returns the values of an expression, one each interval.
func (h *history) evaluate(t *testing.T, engine *promql.Engine, expr string) promql.Matrix {
	q, err := engine.NewRangeQuery(t.Context(), h, nil, expr, h.start, h.start.Add(duration), interval)
	require.NoError(t, err, expr)
	defer q.Close()
	result := q.Exec(t.Context())
	require.NoError(t, result.Err, expr)
	require.Empty(t, result.Warnings, expr)
	m, err := result.Matrix()
	require.NoError(t, err, expr)
	slices.SortFunc(m, func(a, b promql.Series) int { return labels.Compare(a.Metric, b.Metric) })
	m = slices.Clone(m)
	for i := range m {
		m[i].Floats = slices.Clone(m[i].Floats) // the query takes them back
	}
	return m
}

// Querier implements storage.Queryable.
func (h *history) Querier(mint, maxt int64) (storage.Querier, error) {
	return &querier{h, mint, maxt}, nil
}

// A querier reads the samples of a history.
type querier struct {
	*history
	mint, maxt int64
}

// Select implements storage.Querier.
func (q *querier) Select(_ context.Context, _ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
	var all []storage.Series
	for _, r := range q.series {
		if !slices.ContainsFunc(matchers, func(m *labels.Matcher) bool { return !m.Matches(r.labels.Get(m.Name)) }) {
			all = append(all, storage.NewListSeries(r.labels, r.between(q.mint, q.maxt)))
		}
	}
	slices.SortFunc(all, func(a, b storage.Series) int { return labels.Compare(a.Labels(), b.Labels()) })
	return &seriesSet{all: all, at: -1}
}

func (r *recorded) between(mint, maxt int64) (all []chunks.Sample) {
	for _, s := range r.samples {
		if s.at >= mint && s.at <= maxt {
			all = append(all, s)
		}
	}
	return all
}

// LabelValues implements storage.LabelQuerier. The engine does not call it.
func (*querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

// LabelNames implements storage.LabelQuerier. The engine does not call it.
func (*querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

// Close implements storage.LabelQuerier.
func (*querier) Close() error { return nil }

// A seriesSet implements storage.SeriesSet.
type seriesSet struct {
	all []storage.Series
	at  int
}

func (s *seriesSet) Next() bool                      { s.at++; return s.at < len(s.all) }
func (s *seriesSet) At() storage.Series              { return s.all[s.at] }
func (*seriesSet) Err() error                        { return nil }
func (*seriesSet) Warnings() annotations.Annotations { return nil }

// The methods of sample implement chunks.Sample.
func (s sample) T() int64                    { return s.at }
func (sample) ST() int64                     { return 0 }
func (s sample) F() float64                  { return s.value }
func (sample) H() *histogram.Histogram       { return nil }
func (sample) FH() *histogram.FloatHistogram { return nil }
func (sample) Type() chunkenc.ValueType      { return chunkenc.ValFloat }
func (s sample) Copy() chunks.Sample         { return s }

func newEngine() *promql.Engine {
	return promql.NewEngine(promql.EngineOpts{MaxSamples: 50_000_000, Timeout: time.Minute, EnableAtModifier: true, Parser: parser.NewParser(parser.Options{})})
}

// TestDashboard_queriesHaveData evaluates each query of each panel over a load in which
// everything happens.
func TestDashboard_queriesHaveData(t *testing.T) {
	h, engine := play(t, nil), newEngine()
	panels := readPanels(t)
	require.Len(t, panels, 20)
	results := make([][]line, len(panels))
	for i, p := range panels {
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			m := h.evaluate(t, engine, expression(target.Expr))
			require.NotEmpty(t, m, "%s: %s", p.Title, target.Expr)
			for _, s := range m {
				results[i] = append(results[i], line{legend(target.LegendFormat, s.Metric), s.Floats})
			}
		}
	}
	if os.Getenv("HEED_PICTURE") != "" {
		require.NoError(t, os.WriteFile(pictureFile, draw(panels, results, h.start), 0o644))
	}
}

var placeholder = regexp.MustCompile(`\{\{(\w+)\}\}`)

// legend returns the text of a legend.
func legend(format string, l labels.Labels) string {
	text := placeholder.ReplaceAllStringFunc(format, func(s string) string { return l.Get(strings.Trim(s, "{}")) })
	return strings.TrimSpace(strings.Join(strings.Fields(text), " "))
}

// fail returns a function that reports a throttled response and a long wait, which the load has
// at random times only.
func fail(t *testing.T) func(*promheed.Collector) {
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://partner.test/", http.NoBody)
	require.NoError(t, err)
	return func(c *promheed.Collector) {
		trace := c.Trace()
		trace.AttemptDone(req, heed.AttemptInfo{Attempt: 1, Status: http.StatusTooManyRequests, Outcome: throttle.Throttled})
		trace.WaitDone(req, heed.WaitInfo{Attempt: 1, Waited: 40 * time.Second, Limit: "batch"})
	}
}

// TestAlerts_fireDuringFaults checks each alert rule with the load: it fires for the first time
// while the faults last.
func TestAlerts_fireDuringFaults(t *testing.T) {
	h, engine := play(t, fail(t)), newEngine()
	for _, rule := range readAlerts(t) {
		for _, s := range h.evaluate(t, engine, rule.Expr) {
			require.Equal(t, "shop", s.Metric.Get("job"), rule.Alert)
			require.Equal(t, "10.0.0.1:9090", s.Metric.Get("instance"), rule.Alert)
		}
		require.Contains(t, rule.Annotations["summary"], "$labels.job", rule.Alert)
		require.NotEmpty(t, rule.Annotations["description"], rule.Alert)
		require.NotEmpty(t, rule.Labels["severity"], rule.Alert)
		first := firing(h.evaluate(t, engine, rule.Expr), time.Duration(rule.For))
		t.Logf("%s fires first after %v", rule.Alert, first)
		if rule.Alert == "HeedManyWaiting" {
			continue // while rejections are not confirmed, calls wait for their own retries and not in the queue (QUOTA section 2 rule 3)
		}
		require.Greater(t, first, faultStart, rule.Alert)
		require.LessOrEqual(t, first, faultEnd, rule.Alert)
	}
}

// TestAlerts_aHealthyJobFiresNone lets 20 workers use up a stated quota of 20 requests in 10 s for 20 minutes.
func TestAlerts_aHealthyJobFiresNone(t *testing.T) {
	h, engine := playJob(t), newEngine()
	held := h.evaluate(t, engine, `heed_client_quota_hold_seconds > 0`)
	require.Len(t, held, 1)
	for _, rule := range readAlerts(t) {
		require.Zero(t, firing(h.evaluate(t, engine, rule.Expr), time.Duration(rule.For)), rule.Alert)
	}
	n := 0
	for _, p := range held[0].Floats {
		if p.T <= h.start.Add(jobDuration).UnixMilli() {
			n++
		}
	}
	require.Greater(t, n, int(jobDuration/interval)/2)
	t.Logf("the quota is used up at %d of %d scrapes, and no alert fires", n, int(jobDuration/interval))
}

// TestDashboard_panelsHaveOneUnit checks that no panel has seconds and rates on one axis, and that each query can be
// limited to a job and an instance.
func TestDashboard_panelsHaveOneUnit(t *testing.T) {
	for _, p := range readPanels(t) {
		kinds := map[string]bool{}
		for _, target := range p.Targets {
			require.Contains(t, target.Expr, `job=~"$job", instance=~"$instance"`, p.Title)
			kinds[unitOf(target.Expr)] = true
		}
		require.Len(t, kinds, 1, p.Title)
		require.True(t, kinds[map[string]string{"s": "seconds", "reqps": "rate", "ops": "rate"}[p.FieldConfig.Defaults.Unit]], p.Title)
	}
}

// unitOf returns what an expression measures: seconds, a rate, or "" for a number.
func unitOf(expr string) string {
	switch {
	case strings.Contains(expr, "_seconds_bucket"), strings.Contains(expr, "_seconds{"):
		return "seconds"
	case strings.Contains(expr, "rate("), strings.Contains(expr, "_per_second"):
		return "rate"
	}
	return ""
}

// TestAlerts_pass runs the tests of the rules with promtool.
func TestAlerts_pass(t *testing.T) {
	if _, err := exec.LookPath("promtool"); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("promtool is not installed: apt-get install prometheus")
		}
		t.Skip("promtool is not installed: apt-get install prometheus")
	}
	for _, args := range [][]string{{"check", "rules", "alerts.yaml"}, {"test", "rules", "alerts_test.yaml"}} {
		c := exec.CommandContext(t.Context(), "promtool", args...)
		c.Dir = filepath.Dir(alertsFile)
		out, err := c.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
}

// firing returns when an alert fires first, as time since the start of the load; 0: never.
func firing(m promql.Matrix, wait time.Duration) (first time.Duration) {
	for _, s := range m {
		since := int64(0)
		for i, p := range s.Floats {
			if i == 0 || p.T-s.Floats[i-1].T > interval.Milliseconds() {
				since = p.T
			}
			at := time.Duration(p.T-epoch.UnixMilli()) * time.Millisecond
			if p.T-since >= wait.Milliseconds() && (first == 0 || at < first) {
				first = at
			}
		}
	}
	return first
}

// epoch is the beginning of time in a synctest bubble.
var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
