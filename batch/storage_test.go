package batch

import (
	"context"
	"encoding/binary"
	"math"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/heedtest"
)

// FuzzCheckpoint_apply checks that no record makes a checkpoint panic or use much memory.
func FuzzCheckpoint_apply(f *testing.F) {
	f.Add([]byte("S\x00abcd"), []byte("R\x00\x0212345678"))
	f.Add([]byte("F\x00\x01text"), []byte("D\x00value"))
	f.Add(binary.AppendUvarint([]byte{recordDone}, 1<<62), []byte{})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		c := &checkpoint{o: Options{}.withDefaults(), hasHeader: true, doubts: map[int]itemDoubt{}}
		for _, record := range [][]byte{a, b} {
			if err := c.apply(record, nil); err != nil {
				require.ErrorIs(t, err, ErrDamaged)
			}
		}
		require.LessOrEqual(t, len(c.items), maxAhead+2)
		for i := range min(len(c.items), 10) {
			_, _ = c.resume(i, "item")
		}
	})
}

// FuzzStoreReader_apply checks that no record makes the file of an Outbox panic.
func FuzzStoreReader_apply(f *testing.F) {
	e := &entry{entryMeta: entryMeta{ID: 1, Method: "POST", URL: "http://a.test"}, body: []byte("body")}
	record, err := e.record()
	require.NoError(f, err)
	f.Add(headerRecord(1), record, inFlightRecord(1, sentKeyed, 5))
	f.Add(headerRecord(1), record, []byte{recordLeft, 1})
	f.Fuzz(func(t *testing.T, a, b, c []byte) {
		r := storeReader{entries: map[uint64]*entry{}}
		for _, record := range [][]byte{a, b, c} {
			if err := r.apply(record); err != nil {
				require.ErrorIs(t, err, ErrDamaged)
			}
		}
		for _, e := range r.entries {
			_, err := e.request(context.Background())
			require.NoError(t, err)
			require.NotEmpty(t, e.records())
		}
	})
}

func TestOutbox_aFileThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := new(heedtest.Server)
		server.StartInMemory()
		defer server.Close()
		client := heed.NewClient(&heed.Transport{Base: server.Transport()})
		defer client.CloseIdleConnections()
		var left []Delivery
		o, err := OpenOutbox(OutboxConfig{
			Path: filepath.Join(t.TempDir(), "outbox"), Client: client, MaxAttempts: 1,
			IdempotencyKey: func(*http.Request) string { return "" },
			Done:           func(d Delivery) Action { left = append(left, d); return Leave },
		})
		require.NoError(t, err)
		newRequest := func() *http.Request {
			req, err := http.NewRequest(http.MethodPost, server.URL, strings.NewReader("body"))
			require.NoError(t, err)
			return req
		}
		_, err = o.Submit(newRequest())
		require.NoError(t, err)
		require.NoError(t, o.Drain(t.Context()))
		require.NoError(t, o.store.log.Close()) // each later record fails

		size := o.State().Bytes
		_, err = o.Submit(newRequest())
		require.ErrorContains(t, err, "batch: outbox: ")
		require.Equal(t, size, o.State().Bytes)

		e, err := o.newEntry(newRequest()) // a request that was accepted before
		require.NoError(t, err)
		require.NoError(t, o.reserve(e))
		o.insert(e)
		time.Sleep(time.Hour)
		require.Equal(t, 1, o.State().Requests, "it is not sent without a record, and kept")
		require.ErrorContains(t, o.State().LastError, "batch: outbox: ")
		require.Len(t, server.Requests(), 1)
		require.Len(t, left, 1)
		unsent, err := o.Close(t.Context())
		require.NoError(t, err)
		require.Len(t, unsent, 1)
		require.False(t, unsent[0].Sent)
	})
}

// A job whose checkpoint cannot be written ends, and sends nothing that is not recorded.
func TestRun_aCheckpointThatFails(t *testing.T) {
	server := new(heedtest.Server)
	server.Start()
	defer server.Close()
	client := heed.NewClient(&heed.Transport{Base: server.Transport()})
	defer client.CloseIdleConnections()
	c, err := openCheckpoint(Options{Checkpoint: filepath.Join(t.TempDir(), "checkpoint")}.withDefaults(), nil)
	require.NoError(t, err)
	j := newJob(t, Options{})
	j.checkpoint = c
	process(j, task[int]{item: 1}, func(ctx context.Context, _ int) ([]byte, error) {
		require.NoError(t, c.log.Close())
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL, nil)
		if err != nil {
			return nil, err
		}
		_, err = client.Do(req)
		return nil, err
	})
	require.Empty(t, server.Requests())
	report, err := j.result()
	require.ErrorContains(t, err, "batch: checkpoint: ")
	require.Equal(t, 1, report.Interrupted)

	j.stop, j.end = context.WithCancelCause(t.Context())
	require.False(t, j.recordStart(1, 1))
	require.False(t, j.recordDone(1, nil))
	require.False(t, j.recordFailed(1, err, true))
	require.Zero(t, j.report.Done+j.report.Failed)
}

// Drain waits for the requests before it, and not for those that are being stored.
func TestOutbox_drainDoesNotWaitForLaterRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o, err := OpenOutbox(OutboxConfig{})
		require.NoError(t, err)
		earlier, later := new(entry), new(entry)
		require.NoError(t, o.reserve(earlier))
		drained := make(chan error, 1)
		go func() { drained <- o.Drain(context.Background()) }()
		synctest.Wait()
		require.NoError(t, o.reserve(later))
		require.Empty(t, drained)
		o.release(earlier)
		synctest.Wait()
		require.Len(t, drained, 1)
		o.release(later)
		require.NoError(t, <-drained)
		_, err = o.Close(t.Context())
		require.NoError(t, err)
	})
}

// After the clock was set back, records are still written to disk.
func TestCheckpoint_syncsAfterTheClockWasSetBack(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint")
	c, err := openCheckpoint(Options{Checkpoint: path}.withDefaults(), nil)
	require.NoError(t, err)
	c.syncedAt.Store(time.Now().Add(time.Hour).UnixNano())
	require.NoError(t, c.start(0, 1))
	size := c.log.Size()
	require.NoError(t, c.start(1, 1)) // its frame states how much was on disk
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.EqualValues(t, size, binary.LittleEndian.Uint64(content[size+8:]))
	require.NoError(t, c.log.Close())
}

// A server that never responds does not stop an Outbox with the default Client.
func TestOutbox_theDefaultClientDoesNotWaitForGood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &heedtest.Server{Respond: heedtest.Script(heedtest.Response{Fault: heedtest.Hang})}
		server.StartInMemory()
		defer server.Close()
		c := OutboxConfig{}.withDefaults()
		c.Client.Transport.(*heed.Transport).Base = server.Transport()
		defer c.Client.CloseIdleConnections()
		o, err := OpenOutbox(c)
		require.NoError(t, err)
		req, err := http.NewRequest(http.MethodPost, server.URL, nil)
		require.NoError(t, err)
		_, err = o.Submit(req)
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		require.NoError(t, o.Drain(ctx))
		require.Len(t, server.Requests(), 2)
		_, err = o.Close(t.Context())
		require.NoError(t, err)
	})
}

// A file with a kind of request that does not exist is damaged.
func TestStoreReader_rejectsUnknownKinds(t *testing.T) {
	e := &entry{entryMeta: entryMeta{ID: 1, Method: "POST", URL: "http://a.test"}}
	queued, err := e.record()
	require.NoError(t, err)
	r := storeReader{entries: map[uint64]*entry{}}
	require.NoError(t, r.apply(headerRecord(1)))
	require.NoError(t, r.apply(queued))
	require.NoError(t, r.apply(inFlightRecord(1, sentUnsafe, 5)))
	require.ErrorIs(t, r.apply(inFlightRecord(1, sentUnsafe+1, 5)), ErrDamaged)

	c := &checkpoint{hasHeader: true, doubts: map[int]itemDoubt{}}
	record := append(newRecord(recordSent, 0), byte(sentUnsafe+1))
	require.ErrorIs(t, c.apply(append(record, make([]byte, 8)...), nil), ErrDamaged)
}

func TestTimeFor(t *testing.T) {
	for _, tt := range []struct {
		n    int
		rate float64
		want time.Duration
	}{{math.MaxInt, 1. / 3600, 1 << 62}, {10, 4, 2500 * time.Millisecond}, {10, 0, 0}, {10, -1, 0}, {0, 1, 0}, {-1, 1, 0}} {
		require.Equal(t, tt.want, timeFor(tt.n, tt.rate), "%+v", tt)
	}
}

// A process may end after a request was added to the dead letters and before it left its Outbox.
func TestGiveUp_addsARequestOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dead")
	e := &entry{entryMeta: entryMeta{ID: 9, Method: "POST", URL: "http://a.test/", Submitted: 5}, body: []byte("body"), sent: sentKeyed, sentAt: 77, attempts: 3}
	other := *e
	other.body = []byte("other")
	for range 2 {
		require.NoError(t, giveUp(path, e, ErrExpired, 1000))
		require.NoError(t, giveUp(path, &other, ErrExpired, 1000))
	}
	s, entries, nextID, err := openStore(path)
	require.NoError(t, err)
	require.NoError(t, s.log.Close())
	require.Len(t, entries, 2)
	require.EqualValues(t, 3, nextID)
	require.Equal(t, []any{uint64(1), sentKeyed, int64(77), 0, ErrExpired.Error()}, []any{entries[0].ID, entries[0].sent, entries[0].sentAt, entries[0].attempts, entries[0].Failure})
	require.Zero(t, e.Failure, "the request in the Outbox stays as it is")
}
