package batch

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/throttle"
)

func TestOpenTime(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	response := func(headers ...string) *http.Response {
		r := &http.Response{StatusCode: 429, Header: http.Header{}}
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		return r
	}
	for _, tt := range []struct {
		info heed.AttemptInfo
		want time.Duration // after now; 0: the zero time
	}{
		{heed.AttemptInfo{}, 0},
		{heed.AttemptInfo{RetryAfter: 1}, 1},
		{heed.AttemptInfo{RetryAfter: time.Minute, Response: response("RateLimit", `"a";r=0;t=90`)}, time.Minute},
		{heed.AttemptInfo{Response: response()}, 0},
		{heed.AttemptInfo{Response: response("RateLimit", `"a";r=0;t=90`)}, 90 * time.Second},
		{heed.AttemptInfo{Response: response("RateLimit", `"a";r=0;t=90, "b";r=0;t=30`)}, 90 * time.Second},
		{heed.AttemptInfo{Response: response("RateLimit", `"a";r=1;t=90, "b";r=0;t=30`)}, 30 * time.Second},
		{heed.AttemptInfo{Response: response("RateLimit", `"a";r=5;t=90`)}, 0},
		{heed.AttemptInfo{Response: response("RateLimit", `"a";r=0`)}, 0},
		{heed.AttemptInfo{Response: response("X-RateLimit-Reset", "20")}, 20 * time.Second},
	} {
		var want time.Time
		if tt.want > 0 {
			want = now.Add(tt.want)
		}
		require.Equal(t, want, openTime(tt.info, now), "%+v", tt.info)
	}
}

func TestMayBeProcessed(t *testing.T) {
	dial := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	for _, tt := range []struct {
		status int // 0: none
		err    error
		want   bool
	}{
		{200, nil, true}, {204, nil, true}, {302, nil, true}, {399, nil, true},
		{400, nil, false}, {404, nil, false}, {407, nil, false}, {408, nil, true}, {409, nil, false}, {429, nil, false}, {499, nil, false},
		{500, nil, true}, {502, nil, true}, {504, nil, true},
		{0, dial, false},
		{0, fmt.Errorf("wrapped: %w", dial), false},
		{0, &net.OpError{Op: "proxyconnect", Err: syscall.ECONNREFUSED}, false},
		{0, &net.OpError{Op: "read", Err: syscall.ECONNRESET}, true},
		{0, &net.OpError{Op: "write", Err: syscall.EPIPE}, true},
		{0, &net.DNSError{IsNotFound: true}, false},
		{0, &tls.CertificateVerificationError{Err: errors.New("expired")}, false},
		{0, tls.RecordHeaderError{Msg: "not TLS"}, false},
		{0, io.ErrUnexpectedEOF, true},
		{0, context.DeadlineExceeded, true},
		{0, errors.New("other"), true},
	} {
		var resp *http.Response
		if tt.status != 0 {
			resp = &http.Response{StatusCode: tt.status, Header: http.Header{}}
		}
		require.Equal(t, tt.want, mayBeProcessed(resp, tt.err), "%d %v", tt.status, tt.err)
	}
}

func TestIsNetworkError(t *testing.T) {
	rejected := func(wait time.Duration) error {
		return fmt.Errorf("wrapped: %w", &throttle.RejectedError{Decision: throttle.Decision{Wait: wait}, Reason: throttle.ErrRejected})
	}
	for _, tt := range []struct {
		err  error
		want bool
	}{
		{&net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, true},
		{&net.DNSError{}, true},
		{&tls.CertificateVerificationError{Err: errors.New("expired")}, true},
		{io.EOF, true},
		{fmt.Errorf("wrapped: %w", io.ErrUnexpectedEOF), true},
		{context.DeadlineExceeded, true},
		{os.ErrDeadlineExceeded, true},
		{rejected(time.Hour), true},
		{rejected(throttle.Forever - 1), true},
		{rejected(throttle.Forever), false},
		{context.Canceled, false},
		{errors.New("other"), false},
	} {
		require.Equal(t, tt.want, isNetworkError(tt.err), tt.err)
	}
}

func TestWaitOf(t *testing.T) {
	rejected := func(wait time.Duration, reason error) error {
		return &throttle.RejectedError{Decision: throttle.Decision{Wait: wait}, Reason: reason}
	}
	synctest.Test(t, func(t *testing.T) {
		for _, tt := range []struct {
			err     error
			tooLong bool
			until   time.Duration // from now; 0: the zero time
		}{
			{nil, false, 0},
			{errors.New("other"), false, 0},
			{heed.ErrMaxWait, true, 0},
			{heed.ErrMaxElapsed, false, 0},
			{rejected(time.Minute, errors.New("other")), false, 0},
			{rejected(time.Minute, heed.ErrMaxWait), true, time.Minute},
			{rejected(1, heed.ErrMaxWait), true, 1},
			{rejected(0, heed.ErrMaxWait), true, 0},
			{rejected(-1, heed.ErrMaxWait), true, 0},
			{rejected(time.Minute, heed.ErrMaxElapsed), true, time.Minute},
			{rejected(throttle.Forever-1, heed.ErrMaxElapsed), true, throttle.Forever - 1},
			{rejected(throttle.Forever, heed.ErrMaxWait), false, 0},
		} {
			tooLong, until := waitOf(tt.err)
			require.Equal(t, tt.tooLong, tooLong, "%v", tt.err)
			if tt.until == 0 {
				require.Zero(t, until, "%v", tt.err)
			} else {
				require.Equal(t, time.Now().Add(tt.until), until, "%v", tt.err)
			}
		}
	})
}

// A scriptedPolicy returns its delays one after another.
type scriptedPolicy struct {
	delays []time.Duration
	calls  [][2]time.Duration // attempt and previous delay
}

func (p *scriptedPolicy) Delay(attempt int, previous time.Duration) time.Duration {
	p.calls = append(p.calls, [2]time.Duration{time.Duration(attempt), previous})
	d := p.delays[0]
	p.delays = p.delays[1:]
	return d
}

func TestFailures_next(t *testing.T) {
	p := &scriptedPolicy{delays: []time.Duration{backoff.Stop, 3, 5, backoff.Stop, backoff.Stop, 7, 9}}
	f := failures{policy: p}
	for i, want := range []time.Duration{time.Minute, 3, 5, 5, 5, 7} {
		require.Equal(t, want, f.next(), i)
	}
	f.reset()
	require.EqualValues(t, 9, f.next())
	require.Equal(t, [][2]time.Duration{{1, 0}, {2, 0}, {3, 3}, {4, 5}, {5, 5}, {6, 5}, {1, 0}}, p.calls)
}

func TestPauses(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	var p pauses
	require.Zero(t, p.total(at(0)))
	require.Zero(t, p.pausedUntil(at(0)))
	for _, s := range []struct {
		begin, until int // 0: none
		now          int
		total        time.Duration
		paused       time.Time
	}{
		{10, 20, 10, 0, at(20)},
		{0, 0, 14, 4 * time.Second, at(20)},
		{14, 18, 14, 4 * time.Second, at(20)}, // ends earlier
		{15, 20, 15, 5 * time.Second, at(20)},
		{16, 25, 16, 6 * time.Second, at(25)}, // extends it
		{0, 0, 24, 14 * time.Second, at(25)},
		{0, 0, 25, 15 * time.Second, time.Time{}},
		{0, 0, 40, 15 * time.Second, time.Time{}},
		{50, 60, 55, 20 * time.Second, at(60)},
	} {
		if s.until > 0 {
			p.begin(at(s.begin), at(s.until))
		}
		require.Equal(t, s.total, p.total(at(s.now)), "%+v", s)
		require.Equal(t, s.paused, p.pausedUntil(at(s.now)), "%+v", s)
	}
}

// TestEstimator_usesTheLatestMinute checks the rate since the latest sample that is a minute old,
// for samples that are read more and less often than that.
func TestEstimator_usesTheLatestMinute(t *testing.T) {
	for _, tt := range []struct {
		every time.Duration // between samples
		over  time.Duration // for which the rate is measured, once the estimator has that much
	}{
		{time.Second, time.Minute}, {2 * time.Second, time.Minute}, {100 * time.Millisecond, time.Minute}, {7 * time.Second, 63 * time.Second},
		{time.Minute, time.Minute}, {5 * time.Minute, 5 * time.Minute},
	} {
		var e estimator
		processed := func(at time.Duration) int { // 100 items a second, and ten times as many after ten minutes
			return int(at/(10*time.Millisecond)) + 9*int(max(at-10*time.Minute, 0)/(10*time.Millisecond))
		}
		require.Zero(t, e.rate(sample{}))
		for at := tt.every; at < 20*time.Minute; at += tt.every {
			got, from := e.rate(sample{processed(at), at}), max(at-tt.over, 0)
			if tt.every < time.Second { // samples are taken a second apart
				from = max((at - tt.over).Truncate(time.Second), 0)
			}
			want := float64(processed(at)-processed(from)) / (at - from).Seconds()
			require.InDelta(t, want, got, want/1000, "%v at %v", tt.every, at)
			require.LessOrEqual(t, len(e.samples), 62)
		}
	}
	e := estimator{samples: []sample{{5, 0}}}
	require.InDelta(t, 10, e.rate(sample{15, time.Second}), 0)
	require.Zero(t, e.rate(sample{-1000, 300 * time.Second}), "nothing was processed")
	require.Zero(t, e.rate(sample{1000, -time.Second}), "a sample before the first")
}

// TestCheckpoint_apply checks records that are just valid, and those that are not.
func TestCheckpoint_apply(t *testing.T) {
	record := func(kind byte, index uint64, rest string) []byte {
		return append(binary.AppendUvarint([]byte{kind}, index), rest...)
	}
	for _, tt := range []struct {
		record []byte
		ok     bool
	}{
		{nil, false},
		{[]byte{recordStart}, false},
		{[]byte{recordDone}, false}, // without the number of an item
		{record(recordStart, 0, "abcd"), true},
		{record(recordStart, 0, "abc"), false},
		{record(recordStart, 0, "abcde"), false},
		{record(recordStart, maxAhead, "abcd"), true}, // it is the first record
		{record(recordStart, maxAhead+1, "abcd"), false},
		{record(recordSent, 0, "\x0212345678"), true},
		{record(recordSent, 0, "\x021234567"), false},
		{record(recordSent, 0, "\x02123456789"), false},
		{record(recordFailed, 0, "\x01"), true},
		{record(recordFailed, 0, ""), false},
		{record(recordDone, 0, ""), true},
		{record('X', 0, ""), false},
	} {
		c := &checkpoint{o: Options{}.withDefaults(), hasHeader: true, doubts: map[int]itemDoubt{}}
		if err := c.apply(tt.record, nil); tt.ok {
			require.NoError(t, err, "%q", tt.record)
		} else {
			require.ErrorIs(t, err, ErrDamaged, "%q", tt.record)
		}
	}
	require.EqualValues(t, 1<<20, maxAhead, "a file with a million workers remains readable")
}

func TestValidate_boundaries(t *testing.T) {
	for _, tt := range []struct {
		config interface{ Validate() error }
		want   string // part of the error; "": valid
	}{
		{Options{}, ""},
		{Options{Workers: -1}, "Options.Workers is -1"},
		{Options{Total: -1}, "Options.Total is -1"},
		{Options{ProgressInterval: -1}, "Options.ProgressInterval is -1"},
		{Options{MaxFailures: -1}, "Options.MaxFailures is -1"},
		{Options{MaxPause: -1}, "Options.MaxPause is -1"},
		{Options{Repeat: RepeatNever}, ""},
		{Options{Repeat: RepeatNever + 1}, "Options.Repeat is 3"},
		{Options{Repeat: -1}, "Options.Repeat is -1"},
		{Options{KeyLifetime: -1}, ""},
		{OutboxConfig{}, ""},
		{OutboxConfig{KeyLifetime: -1}, ""},
		{OutboxConfig{MaxRequests: 1, MaxBytes: 1, MaxBody: 1, MaxAttempts: 1, MaxAge: 1}, ""},
		{OutboxConfig{MaxRequests: -1}, "OutboxConfig.MaxRequests is -1"},
		{OutboxConfig{MaxBytes: -1}, "OutboxConfig.MaxBytes is -1"},
		{OutboxConfig{MaxBody: -1}, "OutboxConfig.MaxBody is -1"},
		{OutboxConfig{MaxAttempts: -1}, "OutboxConfig.MaxAttempts is -1"},
		{OutboxConfig{MaxAge: -1}, "OutboxConfig.MaxAge is -1"},
	} {
		if err := tt.config.Validate(); tt.want == "" {
			require.NoError(t, err, "%+v", tt.config)
		} else {
			require.ErrorContains(t, err, tt.want, "%+v", tt.config)
		}
	}
}

// TestDefaults checks the documented values of zero fields, and that others are kept.
func TestDefaults(t *testing.T) {
	o := Options{}.withDefaults()
	require.Equal(t, Options{Workers: 10, ProgressInterval: time.Second, KeyLifetime: 24 * time.Hour, StopTimeout: 10 * time.Second, MaxPause: 24 * time.Hour}, o)
	own := Options{Workers: 1, ProgressInterval: 1, KeyLifetime: 1, StopTimeout: 1, MaxPause: 1}
	require.Equal(t, own, own.withDefaults())

	c := OutboxConfig{}.withDefaults()
	require.NotNil(t, c.Client)
	require.Equal(t, backoff.Exponential{Base: time.Second, Max: time.Minute}, c.Backoff)
	require.True(t, c.RejectionPasses(&http.Response{StatusCode: 401}))
	require.False(t, c.RejectionPasses(&http.Response{StatusCode: 403}))
	c.Client, c.Backoff, c.RejectionPasses = nil, nil, nil
	require.Equal(t, OutboxConfig{MaxRequests: 10_000, MaxBytes: 16 << 20, MaxBody: 1 << 20, KeyLifetime: 24 * time.Hour, MaxAttempts: 10}, c)
	set := OutboxConfig{Client: http.DefaultClient, Backoff: backoff.Constant(1), MaxRequests: 1, MaxBytes: 1, MaxBody: 1, KeyLifetime: 1, MaxAttempts: 1}
	defaults := set.withDefaults()
	defaults.RejectionPasses = nil // functions are not comparable
	require.Equal(t, set, defaults)
}

func TestWatch_kindOf(t *testing.T) {
	w := &watch{key: "key-1"}
	for _, tt := range []struct {
		method     string
		header     string // name=value; "": none
		idempotent bool
		want       sent
	}{
		{"GET", "", false, sentIdempotent},
		{"PUT", "", false, sentIdempotent},
		{"POST", "", false, sentUnsafe},
		{"POST", "Idempotency-Key=key-1", false, sentKeyed},
		{"POST", "Idempotency-Key=key-1-part", false, sentKeyed},
		{"POST", "X-Idempotency-Key=key-1", false, sentKeyed},
		{"POST", "Idempotency-Key=key-", false, sentUnsafe},
		{"PATCH", "Idempotency-Key=other", false, sentUnsafe},
		{"POST", "", true, sentIdempotent},
	} {
		ctx := heed.WithOptions(context.Background(), heed.RequestOptions{Idempotent: tt.idempotent})
		req, err := http.NewRequestWithContext(ctx, tt.method, "http://a.test", nil)
		require.NoError(t, err)
		if name, value, ok := strings.Cut(tt.header, "="); ok {
			req.Header.Set(name, value)
		}
		require.Equal(t, tt.want, w.kindOf(req), "%+v", tt)
	}
	req, err := http.NewRequest("POST", "http://a.test", nil)
	require.NoError(t, err)
	req.Header.Set("Idempotency-Key", "own")
	require.Equal(t, sentUnsafe, new(watch).kindOf(req), "a watch without a key")
}

// TestStoreReader_apply checks records of an Outbox that are just valid, and those that are not.
func TestStoreReader_apply(t *testing.T) {
	record := func(kind byte, id uint64, rest string) []byte {
		return append(binary.AppendUvarint([]byte{kind}, id), rest...)
	}
	queued := func(meta, body string) string {
		return string(binary.AppendUvarint(nil, uint64(len(meta)))) + meta + body
	}
	const meta = `{"Method":"POST","URL":"http://a.test/"}`
	for _, tt := range []struct {
		record []byte
		ok     bool
	}{
		{nil, false},
		{[]byte{recordQueued}, false},
		{[]byte{recordLeft}, false},
		{record(recordQueued, 8, queued(meta, "body")), true},
		{record(recordQueued, 8, queued(meta, "")), true},
		{record(recordQueued, 8, ""), false},
		{record(recordQueued, 8, "\x01"), false}, // ends before the JSON
		{record(recordQueued, 8, queued(meta, "")[:len(meta)]), false},
		{record(recordQueued, 8, queued("{", "")), false},
		{record(recordQueued, 8, queued(`{"URL":"http://a.test/"}`, "")), false},
		{record(recordQueued, 8, queued(`{"Method":"POST","URL":"http://a b/"}`, "")), false},
		{record(recordInFlight, 7, "\x0212345678"), true},
		{record(recordInFlight, 7, "\x0312345678"), false},
		{record(recordInFlight, 7, "\x021234567"), false},
		{record(recordInFlight, 7, "\x02123456789"), false},
		{record(recordInFlight, 8, "\x0212345678"), false}, // a request that was not queued
		{record(recordUnsent, 7, ""), true},
		{record(recordAttempted, 7, ""), true},
		{record(recordLeft, 7, ""), true},
		{record(recordLeft, 8, ""), false},
		{record('X', 7, ""), false},
	} {
		r := storeReader{entries: map[uint64]*entry{}}
		require.NoError(t, r.apply(headerRecord(5)))
		require.NoError(t, r.apply(record(recordQueued, 7, queued(meta, "first"))))
		require.EqualValues(t, 8, r.nextID)
		if err := r.apply(tt.record); tt.ok {
			require.NoError(t, err, "%q", tt.record)
		} else {
			require.ErrorIs(t, err, ErrDamaged, "%q", tt.record)
			require.Len(t, r.entries, 1)
		}
	}
	for _, header := range []string{"", "O", "O{", `O{"Outbox":0}`, `O{"Outbox":2,"NextID":1}`, `H{"Outbox":1,"NextID":1}`, `X{"Outbox":1,"NextID":1}`} {
		r := storeReader{entries: map[uint64]*entry{}}
		require.ErrorIs(t, r.apply([]byte(header)), ErrDamaged, "%q", header)
	}
}

// TestStoreReader_followsARequest reads what happens to a request, and what is written of it when
// the file is rewritten.
func TestStoreReader_followsARequest(t *testing.T) {
	e := &entry{entryMeta: entryMeta{ID: 3, Method: "POST", URL: "http://a.test/x", Header: http.Header{"A": {"b"}}, Key: "k", Submitted: 77}, body: []byte("body")}
	r := storeReader{entries: map[uint64]*entry{}}
	queued, err := e.record()
	require.NoError(t, err)
	id := func(kind byte) []byte { return binary.AppendUvarint([]byte{kind}, 3) }
	for _, record := range [][]byte{headerRecord(2), queued, inFlightRecord(3, sentUnsafe, 5), id(recordAttempted), id(recordAttempted), id(recordUnsent), inFlightRecord(3, sentKeyed, 9)} {
		require.NoError(t, r.apply(record))
	}
	got := r.entries[3]
	require.Equal(t, e.entryMeta, got.entryMeta)
	require.Equal(t, "body", string(got.body))
	require.Equal(t, []any{sentKeyed, int64(9), 2}, []any{got.sent, got.sentAt, got.attempts})
	require.EqualValues(t, 4, r.nextID)
	require.Equal(t, [][]byte{queued, inFlightRecord(3, sentKeyed, 9), id(recordAttempted), id(recordAttempted)}, got.records())
	require.NoError(t, r.apply(id(recordUnsent)))
	require.Equal(t, []any{sentIdempotent, int64(0), 2}, []any{got.sent, got.sentAt, got.attempts})
	require.Equal(t, [][]byte{queued, id(recordAttempted), id(recordAttempted)}, got.records())

	n := 0
	for range storeRecords([]*entry{got}, 4) { // a reader that ends early
		if n++; n == 2 {
			break
		}
	}
	for range storeRecords([]*entry{got}, 4) {
		break
	}
	require.NoError(t, r.apply(id(recordLeft)))
	require.Empty(t, r.entries)
	require.EqualValues(t, 4, r.nextID, "numbers are not used again")

	const bare = `{"Method":"GET","URL":"http://a.test/"}`
	require.NoError(t, r.apply(append([]byte{recordQueued, 9, byte(len(bare))}, bare...)))
	require.NotNil(t, r.entries[9].queued().Request.Header, "a program may add headers")
}

// TestErrors_messages checks the texts of errors with numbers.
func TestErrors_messages(t *testing.T) {
	require.EqualError(t, &FullError{Requests: 1, Bytes: 2, MaxRequests: 3, MaxBytes: 4}, "batch: the Outbox is full: 1 of at most 3 requests and 2 of at most 4 bytes")
	require.ErrorIs(t, &FullError{}, ErrOutboxFull)
	require.NotErrorIs(t, &FullError{}, ErrOutboxClosed)
	cause := errors.New("cause")
	pause := &PauseError{Until: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Err: cause}
	require.EqualError(t, pause, "batch: the job would pause until 2026-03-01T12:00:00Z, longer than Options.MaxPause: cause")
	require.ErrorIs(t, pause, cause)
	require.ErrorIs(t, &storeError{cause}, cause)
}

// TestCheckpoint_applyFailed checks what is kept of a failed item: it is repeated with its key if
// its other requests were rejected.
func TestCheckpoint_applyFailed(t *testing.T) {
	for _, tt := range []struct {
		sent   []sent // requests, sent at 1, 2, ...
		doubt  bool
		repeat Repeat
		want   itemState
		at     int64
		reason string
	}{
		{nil, true, RepeatSafe, itemState{phase: phaseFailed}, 0, "why"}, // it sent nothing: its effects are unknown
		{nil, true, RepeatNever, itemState{phase: phaseFailed}, 0, "why"},
		{[]sent{sentIdempotent}, false, RepeatSafe, itemState{phase: phaseFailed}, 0, ""},
		{[]sent{sentUnsafe}, false, RepeatSafe, itemState{phase: phaseFailed}, 0, ""},
		{[]sent{sentUnsafe}, true, RepeatSafe, itemState{phase: phaseFailed, sent: sentUnsafe}, 0, "why"},
		{[]sent{sentKeyed}, false, RepeatSafe, itemState{phase: phaseFailed, sent: sentKeyed}, 1, "why"},
		{[]sent{sentUnsafe, sentKeyed}, false, RepeatSafe, itemState{phase: phaseFailed, sent: sentKeyed}, 2, "why"},
		{[]sent{sentKeyed, sentUnsafe, sentKeyed}, false, RepeatSafe, itemState{phase: phaseFailed, sent: sentKeyed}, 1, "why"},
		{[]sent{sentKeyed, sentUnsafe}, true, RepeatSafe, itemState{phase: phaseFailed, sent: sentUnsafe}, 1, "why"},
	} {
		c := &checkpoint{o: Options{Repeat: tt.repeat}.withDefaults(), doubts: map[int]itemDoubt{}, items: make([]itemState, 1)}
		for i, kind := range tt.sent {
			c.applySent(0, kind, int64(i+1))
		}
		c.applyFailed(0, tt.doubt, "why")
		tt.want.observed = len(tt.sent) > 0
		require.Equal(t, tt.want, c.items[0], "%+v", tt)
		require.Equal(t, itemDoubt{sentAt: tt.at, reason: tt.reason}, c.doubts[0], "%+v", tt)
	}
}

// TestRemembersKey checks the age at which a server has forgotten a key.
func TestRemembersKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now().UnixMilli()
		for _, tt := range []struct {
			age  int64 // milliseconds
			life time.Duration
			want bool
		}{
			{0, time.Second, true}, {999, time.Second, true}, {1000, time.Second, false}, {1001, time.Second, false},
			{-999, time.Second, true}, {-1000, time.Second, false}, {1 << 40, -1, true}, {-1 << 40, -1, true},
		} {
			require.Equal(t, tt.want, remembersKey(now-tt.age, tt.life), "%+v", tt)
		}
	})
}
