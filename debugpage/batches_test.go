package debugpage

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed/batch"
)

// What each state of a job or an Outbox looks like.
func TestBatchRow_states(t *testing.T) {
	now := time.Unix(1000, 0)
	for text, tt := range map[string]struct {
		s     batch.Snapshot
		class string
		left  string
	}{
		"runs":                                 {batch.Snapshot{TimeLeft: 90 * time.Second}, "ok", "1 min 30 s"},
		"paused for 2 s":                       {batch.Snapshot{PausedUntil: now.Add(2 * time.Second), Failed: 1}, "held", "not known"},
		"ended":                                {batch.Snapshot{Ended: now}, "ok", "not known"},
		"ended with an error":                  {batch.Snapshot{Ended: now, Failure: "disk full"}, "slow", "not known"},
		"empty":                                {batch.Snapshot{Outbox: true, Unknown: 1}, "slow", "not known"},
		"first request is sent again in 1 min": {batch.Snapshot{Outbox: true, FirstSince: now, PausedUntil: now.Add(time.Minute)}, "held", "not known"},
		"sends the first request since 1 h":    {batch.Snapshot{Outbox: true, FirstSince: now.Add(-time.Hour)}, "ok", "not known"},
		"sends the first request since 0 s":    {batch.Snapshot{Outbox: true, FirstSince: now.Add(time.Second), PausedUntil: now}, "ok", "not known"},
	} {
		r := newBatchRow(tt.s, now)
		require.Equal(t, []string{text, tt.class, tt.left}, []string{r.StateText(), r.State(), r.TimeLeftText()}, text)
	}
}

func body(p *Page) string {
	return serve(p, httptest.NewRequest(http.MethodGet, "/", http.NoBody)).Body.String()
}

// The page shows the jobs that run and the Outboxes that are open, and escapes their names.
func TestPage_showsJobsAndOutboxes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &batch.Monitor{}
		p := &Page{Batches: m}
		require.Contains(t, body(p), "No job runs")
		o, err := batch.OpenOutbox(batch.OutboxConfig{Client: &http.Client{}, Monitor: m, Name: "<b>events"})
		require.NoError(t, err)
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			batch.Run(t.Context(), slices.Values([]int{1, 2, 3}), func(ctx context.Context, i int) error {
				time.Sleep(time.Duration(i) * time.Minute)
				return errors.Join(map[int]error{1: errors.New("at https://user:secret@api.test/?key=secret")}[i])
			}, batch.Options{Job: "import", Total: 3, Workers: 1, Monitor: m})
		}()
		time.Sleep(2*time.Minute + time.Second)
		page := body(p)
		require.Contains(t, page, "&lt;b&gt;events")
		require.NotContains(t, page, "secret")
		rows := p.state(filter{}).Batches.Rows
		require.Equal(t, []string{"<b>events", "import"}, []string{rows[0].Name, rows[1].Name})
		require.Equal(t, []int{0, 1, 1, 1}, []int{rows[1].Done, rows[1].Failed, rows[1].Running, *rows[1].Waiting})
		<-ended
		require.NotNil(t, p.state(filter{}).Batches.Rows[1].Ended)
		_, err = o.Close(t.Context())
		require.NoError(t, err)
	})
	require.Nil(t, new(Page).state(filter{}).Batches)
	m := &batch.Monitor{}
	for range maxBatchRows + 3 {
		o, err := batch.OpenOutbox(batch.OutboxConfig{Client: &http.Client{}, Monitor: m})
		require.NoError(t, err)
		defer o.Close(context.Background())
	}
	table := newBatchTable(m, time.Now())
	require.Equal(t, []int{maxBatchRows, 3}, []int{len(table.Rows), table.Omitted})
}
