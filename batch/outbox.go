package batch

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/backoff"
	"github.com/heed-go/heed/internal/journal"
)

var (
	// ErrOutboxClosed is returned by Submit and Drain after Close was called.
	ErrOutboxClosed = errors.New("batch: the Outbox is closed")

	// ErrOutboxFull is matched by *FullError.
	ErrOutboxFull = errors.New("batch: the Outbox is full")

	// ErrBodyTooLarge means that the body of a request is longer than OutboxConfig.MaxBody.
	ErrBodyTooLarge = errors.New("batch: the body is too large for the Outbox")

	// ErrCredentials means that a request has a header or URL with credentials, which an
	// Outbox does not write to disk. See OutboxConfig.StoreCredentials.
	ErrCredentials = errors.New("batch: the Outbox does not write credentials to disk: add them in RetryPolicy.BeforeSend")

	// ErrInvalidRequest means that a request cannot be sent by an Outbox.
	ErrInvalidRequest = errors.New("batch: the Outbox cannot send the request")

	// ErrRejected means that a request left the Outbox because of its response, which does
	// not change if the request is repeated, or after the last of OutboxConfig.MaxAttempts.
	ErrRejected = errors.New("batch: the server rejected the request")

	// ErrExpired means that a request left the Outbox because of OutboxConfig.MaxAge.
	ErrExpired = errors.New("batch: the request has expired")
)

// A FullError means that a request does not fit into an Outbox. It matches ErrOutboxFull.
type FullError struct {
	// Requests and Bytes are what the Outbox holds, without the request.
	Requests int
	Bytes    int64

	// MaxRequests and MaxBytes are its bounds.
	MaxRequests int
	MaxBytes    int64
}

// Error returns a message with the numbers.
func (e *FullError) Error() string {
	return fmt.Sprintf("%v: %d of at most %d requests and %d of at most %d bytes", ErrOutboxFull, e.Requests, e.MaxRequests, e.Bytes, e.MaxBytes)
}

// Is reports whether target is ErrOutboxFull.
func (e *FullError) Is(target error) bool { return target == ErrOutboxFull }

// An OutboxConfig holds the settings of an Outbox. The zero OutboxConfig is that of an
// Outbox in memory.
type OutboxConfig struct {
	// Client sends the requests. Its Transport should be a heed.Transport, which delays them
	// as limits require; a StartJitter there spreads the first requests of devices that start
	// together. Set RetryPolicy.AttemptTimeout, or Timeout of the Client: without one, a
	// server that never responds delays all requests. Nil means a heed.Transport with an
	// AttemptTimeout of one minute.
	Client *http.Client

	// Path is the path of the file that keeps the requests. It is created if it does not
	// exist, with mode 0600; for moments there is one with the suffix .tmp beside it.
	// One process can use it at a time. Empty means that the
	// requests are kept in memory only.
	Path string

	// Done is called when a request would leave the Outbox: delivered, rejected, expired, or
	// with an unknown outcome. It returns what to do with the request. It is called by one goroutine at a time, which sends the next
	// request when it has returned. It may call Submit, but not Drain or Close. If the
	// process is killed before it has returned, the request is sent again with the same
	// Idempotency-Key and Done is called again. A panic of Done ends the process. Nil means
	// Leave for all.
	Done func(Delivery) Action

	// DeadLetters is the path of a file for requests that were given up: they leave with an
	// error, and Done returns Leave. It has the form of the file of an Outbox, with at most
	// MaxBytes: ReadOutbox lists its requests, and an Outbox with its path sends them. It is
	// open only while a request is added. If that fails, the request stays the first, with the
	// error in OutboxState.LastError. Empty means none.
	DeadLetters string

	// RejectionPasses reports whether the reason of a response with a status from 400 to 499
	// passes, so that the request stays the first and is sent again: an expired token (401), a
	// permission (403) or a resource (404) that is still missing. It is not called for
	// responses for which Done is not called in any case, such as 408 and 429. It must not
	// read the body. Nil means that 401 passes.
	RejectionPasses func(*http.Response) bool

	// Monitor shows the Outbox on a debugpage.Page and in metrics, under Name, until it is
	// closed. Nil means that it is not shown. An empty Name is a name, too.
	Monitor *Monitor
	Name    string

	// MaxRequests is the maximum number of requests. Zero means 10,000.
	MaxRequests int

	// MaxBytes is the maximum size of all requests with their bodies in memory. The file can be
	// twice as long, or 256 KiB if that is more, and while it is rewritten there is a second
	// one. Zero means 16 MiB.
	MaxBytes int64

	// MaxBody is the maximum size of the body of a request. On disk a request can have at most
	// 64 MiB with its headers. Zero means 1 MiB.
	MaxBody int64

	// IdempotencyKey returns the Idempotency-Key of a request that has none, when it is
	// submitted. If it returns "", the request has none and is sent at most once, unless it is
	// idempotent or an attempt was not processed. It is not called for GET, HEAD, OPTIONS and
	// TRACE. Nil means a random UUID for all other requests.
	IdempotencyKey func(*http.Request) string

	// KeyLifetime is the time for which the server remembers an Idempotency-Key. A request
	// that may have been processed is not sent again when it has elapsed since it was first
	// sent; it leaves the Outbox with ErrInterrupted. Zero means 24 hours, as with many
	// servers; a negative value means for any time.
	KeyLifetime time.Duration

	// MaxAttempts is the number of times that a request is sent to a server that responds
	// with an error of its own, such as 500. Each may include the retries of the Transport.
	// Errors of the Client count too, such as that of RetryPolicy.BeforeSend. Failures of the
	// network, waits for limits, 408, 425, 429, 502, 503, 504 and 520 to 524 do not count. Zero
	// means 10.
	MaxAttempts int

	// MaxAge is the time after which a request is not sent any longer. Zero means that
	// requests do not expire.
	MaxAge time.Duration

	// Backoff returns the delay after a failure, if the server states none. Its attempts are
	// those since a request last left the Outbox. Nil means exponential delays from one
	// second to one minute with jitter.
	Backoff backoff.Policy

	// StoreCredentials permits requests with headers or URLs that hold credentials in an
	// Outbox on disk: headers and query parameters that are known to carry secrets, or whose
	// names state it (Authorization, Cookie, X-API-Key, Private-Token, api_key, access_token,
	// X-Amz-Signature and the like), and a user in the URL. Without it, Submit rejects them
	// with ErrCredentials. Other headers and parameters, the path and the body are always
	// written to disk.
	StoreCredentials bool
}

const (
	defaultMaxRequests = 10_000
	defaultMaxBytes    = 16 << 20
	defaultMaxBody     = 1 << 20
	defaultMaxAttempts = 10

	defaultAttemptTimeout = time.Minute
)

// withDefaults returns c with defaults for zero fields.
func (c OutboxConfig) withDefaults() OutboxConfig {
	if c.Client == nil {
		c.Client = heed.NewClient(&heed.Transport{Retry: &heed.RetryPolicy{AttemptTimeout: defaultAttemptTimeout}})
	}
	if c.MaxRequests == 0 {
		c.MaxRequests = defaultMaxRequests
	}
	if c.MaxBytes == 0 {
		c.MaxBytes = defaultMaxBytes
	}
	if c.MaxBody == 0 {
		c.MaxBody = defaultMaxBody
	}
	if c.KeyLifetime == 0 {
		c.KeyLifetime = defaultKeyLifetime
	}
	if c.RejectionPasses == nil {
		c.RejectionPasses = isUnauthorized
	}
	if c.MaxAttempts == 0 {
		c.MaxAttempts = defaultMaxAttempts
	}
	if c.Backoff == nil {
		c.Backoff = backoff.Exponential{Base: time.Second, Max: time.Minute}
	}
	return c
}

func isUnauthorized(resp *http.Response) bool { return resp.StatusCode == http.StatusUnauthorized }

// Validate returns an error if a field has a value that OpenOutbox rejects.
func (c OutboxConfig) Validate() error {
	return rejectNegative("OutboxConfig", []field{
		{"MaxRequests", int64(c.MaxRequests)}, {"MaxBytes", c.MaxBytes}, {"MaxBody", c.MaxBody},
		{"MaxAttempts", int64(c.MaxAttempts)}, {"MaxAge", int64(c.MaxAge)},
	})
}

// A QueuedRequest is a request in an Outbox.
type QueuedRequest struct {
	// ID is the number that Submit returned.
	ID uint64

	// Request is the request with its Idempotency-Key, and with a body that can be read. Its
	// context has the heed.RequestOptions with which it was submitted.
	Request *http.Request

	// Submitted is the time at which the request was submitted.
	Submitted time.Time

	// Sent means that the request was sent, and that the server may have processed it.
	Sent bool

	// Failure is the text of the error with which the request was given up, without the user,
	// query and fragment of URLs. It is empty unless the request is in a file of
	// OutboxConfig.DeadLetters.
	Failure string
}

// ReadOutbox returns the requests in the file of an Outbox or of OutboxConfig.DeadLetters, in
// order. It only reads the file, which may be in use.
//
// The error matches ErrDamaged if the file is damaged or was not written by an Outbox. If a part
// can be read, the requests are those before and after the damage, and Sent is set for those
// before it that are not idempotent, as the damage may hide that they were sent, or delivered.
// They can be submitted to a new Outbox with their Idempotency-Keys.
func ReadOutbox(path string) ([]QueuedRequest, error) {
	r := storeReader{entries: map[uint64]*entry{}}
	err := journal.ReadFile(path, r.apply, r.skip)
	return queuedRequests(r.sorted()), fileError("outbox", err)
}

// An Action states what an Outbox does with a request that would leave it.
type Action int

const (
	// Leave removes the request. If it has failed, it is added to OutboxConfig.DeadLetters.
	Leave Action = iota

	// Keep keeps a request that has failed the first, and sends it again after
	// OutboxConfig.Backoff. After ErrInterrupted it states that the request was not processed.
	// It has no effect on a request that was delivered.
	Keep

	// Discard removes the request, also if it has failed.
	Discard
)

// A Delivery describes a request that leaves an Outbox.
type Delivery struct {
	QueuedRequest

	// Response is the last response. Its body can be read until OutboxConfig.Done returns,
	// and is closed then. Nil means that there was none.
	Response *http.Response

	// Err is nil if the request was delivered: the status is below 400. Otherwise it matches
	// ErrRejected, ErrExpired or ErrInterrupted.
	Err error
}

// An OutboxState describes an Outbox.
type OutboxState struct {
	// Requests is the number of requests that it holds.
	Requests int

	// Bytes is their size.
	Bytes int64

	// NextTry is when the first request is sent again after a failure. Zero means that it is
	// being sent or waits for a limit in the Transport, or that there is none.
	NextTry time.Time

	// LastError is the failure that NextTry follows: of the network, of the server, or of
	// the file. Nil means that there was none since a request last left the Outbox.
	LastError error

	// Cut is the number of bytes at the end of the file that were removed when it was opened:
	// of a record that was being written when the process ended, or of the last one if it was
	// damaged.
	Cut int64
}

// An Outbox keeps requests and sends them in the background, one at a time, in the order in
// which they were submitted. It is safe for concurrent use. OpenOutbox creates one.
//
// A request that the server throttles, or that fails because of the network, stays the
// first and is sent again when the server accepts it, so that later requests do not
// overtake it, as does one that is rejected for a reason that passes. A request leaves the Outbox when its response is final; OutboxConfig.Done
// then gets it.
//
// With OutboxConfig.Path, a request that Submit has accepted is on disk, and is sent after a
// restart if it was not sent before.
type Outbox struct {
	c       OutboxConfig
	viaHeed bool // the Transport of the client is a heed.Transport, which reports attempts
	store   *store
	ctx     context.Context // of the requests
	cancel  context.CancelFunc
	wake    chan struct{} // has a value after Wake
	closed  chan struct{} // is closed by Close
	ended   chan struct{} // is closed when the sender has ended

	mu        sync.Mutex
	isClosed  bool
	entries   []*entry      // by ID; only the sender removes them
	storing   []uint64      // the numbers of the requests that are being stored, in order
	bytes     int64         // size of entries and of the requests that are being stored
	nextID    uint64        // of the next request
	changed   chan struct{} // is closed when an entry was added or removed
	state     OutboxState   // NextTry and LastError
	delivered delivered
}

// OpenOutbox creates an Outbox, and begins to send the requests that its file holds. The
// error matches ErrLocked if another Outbox uses the file, and ErrDamaged if the file is
// damaged.
func OpenOutbox(c OutboxConfig) (*Outbox, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	c = c.withDefaults()
	o := &Outbox{c: c, nextID: 1, wake: make(chan struct{}, 1), closed: make(chan struct{}), ended: make(chan struct{}), changed: make(chan struct{})}
	_, o.viaHeed = c.Client.Transport.(*heed.Transport)
	if c.Path != "" {
		store, entries, nextID, err := openStore(c.Path)
		if err != nil {
			return nil, fileError("outbox", err)
		}
		o.store, o.entries, o.nextID = store, entries, nextID
		for _, e := range entries {
			o.bytes += e.size
		}
	}
	if len(o.entries) > 0 {
		o.delivered.begin(time.Now())
	}
	o.ctx, o.cancel = context.WithCancel(context.Background())
	c.Monitor.add(o, c.Name)
	go o.run()
	return o, nil
}

// Submit adds a request, and returns its number. It reads and closes the body of req. With
// OutboxConfig.Path the request is on disk when Submit returns; concurrent calls share a
// write to disk. The heed.RequestOptions in the context of req apply when it is sent, but
// its deadline and other values do not.
//
// The error is a *FullError, or matches ErrBodyTooLarge, ErrCredentials, ErrOutboxClosed or
// ErrInvalidRequest, or is that of the body or the file. The request was then not added. Only
// if the disk fails after the file was written, the request may be in the file, and is then
// sent after a restart.
func (o *Outbox) Submit(req *http.Request) (id uint64, err error) {
	e, err := o.newEntry(req)
	if err != nil {
		return 0, err
	}
	if err := o.reserve(e); err != nil {
		return 0, err
	}
	if o.store != nil {
		o.store.begin()
		defer o.store.end()
		if err := o.store.add(e); err != nil {
			o.release(e)
			return 0, fileError("outbox", err)
		}
	}
	o.insert(e)
	return e.ID, nil
}

// reserve counts e as a request that is being stored, and sets its ID.
func (o *Outbox) reserve(e *entry) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.isClosed {
		return ErrOutboxClosed
	}
	n := len(o.entries) + len(o.storing)
	if n >= o.c.MaxRequests || o.bytes+e.size > o.c.MaxBytes {
		return &FullError{Requests: n, Bytes: o.bytes, MaxRequests: o.c.MaxRequests, MaxBytes: o.c.MaxBytes}
	}
	e.ID = o.nextID
	o.nextID++
	o.storing = append(o.storing, e.ID)
	o.bytes += e.size
	return nil
}

// release ends the count of e, which could not be stored.
func (o *Outbox) release(e *entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stored(e)
	o.bytes -= e.size
	o.signal()
}

// stored ends the count of e among those that are being stored. The caller holds mu.
func (o *Outbox) stored(e *entry) {
	if i, ok := slices.BinarySearch(o.storing, e.ID); ok {
		o.storing = slices.Delete(o.storing, i, i+1)
	}
}

// insert adds e, which is stored.
func (o *Outbox) insert(e *entry) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stored(e)
	i, _ := slices.BinarySearchFunc(o.entries, e.ID, func(e *entry, id uint64) int {
		return int(min(max(int64(e.ID)-int64(id), -1), 1))
	})
	o.entries = slices.Insert(o.entries, i, e)
	o.delivered.begin(time.Now())
	o.signal()
}

// signal wakes the goroutines that wait for a change. The caller holds mu.
func (o *Outbox) signal() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// Drain returns nil when all requests that were submitted before the call have left the
// Outbox, the cause of ctx if it ends first, or ErrOutboxClosed.
func (o *Outbox) Drain(ctx context.Context) error {
	o.mu.Lock()
	next := o.nextID
	o.mu.Unlock()
	for {
		o.mu.Lock()
		empty := (len(o.storing) == 0 || o.storing[0] >= next) && (len(o.entries) == 0 || o.entries[0].ID >= next)
		closed, changed := o.isClosed, o.changed
		o.mu.Unlock()
		switch {
		case empty:
			return nil
		case closed:
			return ErrOutboxClosed
		}
		select {
		case <-changed:
		case <-o.closed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Wake ends the present delay after a failure. Call it when the device is online again.
func (o *Outbox) Wake() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// State returns the state of the Outbox.
func (o *Outbox) State() OutboxState {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.state
	s.Requests, s.Bytes = len(o.entries), o.bytes
	if o.store != nil {
		s.Cut = o.store.log.Cut()
	}
	return s
}

// Close ends the Outbox. It lets the request in flight finish, or cancels it when ctx ends,
// and returns the requests that were not delivered. It waits for OutboxConfig.Done and for
// calls of Submit, also when ctx has ended. The requests of an Outbox on disk stay there, and
// are sent when it is opened again. The error is that of the file. Later calls return the
// same requests.
func (o *Outbox) Close(ctx context.Context) ([]QueuedRequest, error) {
	o.mu.Lock()
	if !o.isClosed {
		o.isClosed = true
		close(o.closed)
	}
	o.mu.Unlock()
	select {
	case <-o.ended:
	case <-ctx.Done():
	}
	o.cancel()
	<-o.ended
	o.c.Monitor.remove(o)
	o.awaitSubmits()
	var err error
	if o.store != nil {
		err = fileError("outbox", o.store.close(o.snapshot()))
	}
	return o.unsent(), err
}

// awaitSubmits waits for the calls of Submit that began before Close.
func (o *Outbox) awaitSubmits() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.storing) > 0 {
		changed := o.changed
		o.mu.Unlock()
		<-changed
		o.mu.Lock()
	}
}

// snapshot returns the entries and the next ID.
func (o *Outbox) snapshot() ([]*entry, uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.entries), o.nextID
}

// unsent returns the requests that are left.
func (o *Outbox) unsent() []QueuedRequest {
	entries, _ := o.snapshot()
	return queuedRequests(entries)
}

func queuedRequests(entries []*entry) []QueuedRequest {
	all := make([]QueuedRequest, len(entries))
	for i, e := range entries {
		all[i] = e.queued()
	}
	return all
}
