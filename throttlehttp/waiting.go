package throttlehttp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/heed-go/heed/throttle/queue"
)

const (
	// defaultMaxTotal is the maximum number of requests that a Queue without a MaxTotal delays
	// at the same time. It is the default of Envoy's circuit breakers for pending requests.
	defaultMaxTotal = 1024

	// defaultMaxWait is the longest delay by a Queue without a MaxWait.
	defaultMaxWait = time.Minute

	// maxWaitingPerKey is the maximum number of requests of one key of a limit that a Queue
	// without a MaxPerClass delays at the same time, so that one client cannot take all places
	// of MaxTotal.
	maxWaitingPerKey = 64

	// maxBufferedBody is the length in bytes of the longest body that is read before its
	// request waits.
	maxBufferedBody = 64 << 10
)

// A waitingKeys counts the requests of a Middleware that wait in its Queue, by key.
type waitingKeys struct {
	mu     sync.Mutex
	counts map[waitingKey]int // of the keys that at least one request waits with
}

type waitingKey struct {
	limiter any // the throttle.Limiter; nil if its type is not comparable
	key     string
}

// waitingKey returns the key of demand i of p. It returns false if all requests share it.
func (p *requestState) waitingKey(i int) (k waitingKey, ok bool) {
	m := &p.ticket.Demands[i]
	if m.Limiter == nil || m.Key == "" && (p.ruleOf(i) == nil || p.ruleOf(i).Key == nil) {
		return k, false
	}
	k.key = m.Key
	if reflect.ValueOf(m.Limiter).Comparable() {
		k.limiter = m.Limiter
	}
	return k, true
}

// add counts p. It returns a *queue.FullError if one of its keys has maxWaitingPerKey waiting
// requests; then p is not counted.
func (w *waitingKeys) add(p *requestState) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range p.ticket.Demands {
		if k, ok := p.waitingKey(i); ok && w.counts[k] >= maxWaitingPerKey {
			return &queue.FullError{Waiting: w.counts[k], Max: maxWaitingPerKey}
		}
	}
	if w.counts == nil {
		w.counts = map[waitingKey]int{}
	}
	for i := range p.ticket.Demands {
		if k, ok := p.waitingKey(i); ok {
			w.counts[k]++
		}
	}
	return nil
}

// remove reverses add.
func (w *waitingKeys) remove(p *requestState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range p.ticket.Demands {
		k, ok := p.waitingKey(i)
		if !ok {
			continue
		}
		if w.counts[k]--; w.counts[k] == 0 {
			delete(w.counts, k)
		}
	}
}

// wait waits in the Queue of m until all demands of p are granted.
func (p *requestState) wait(m *Middleware, waiting *waitingKeys, r *http.Request) error {
	p.request, p.waiting = r, waiting
	if m.Queue.MaxPerClass != 0 {
		p.waiting = nil
	}
	defer p.endWait()
	return m.Queue.WaitHooks(r.Context(), &p.ticket, queue.Hooks{Renew: p.onWait})
}

// beginWait is called before p waits, and possibly again while it waits.
func (p *requestState) beginWait() error {
	if p.request == nil {
		return nil
	}
	if p.waiting != nil {
		if err := p.waiting.add(p); err != nil {
			return err
		}
		p.counted = true
	}
	r := p.request
	p.request = nil
	return bufferBody(r)
}

// endWait is called after beginWait, also if p did not wait.
func (p *requestState) endWait() {
	if p.counted {
		p.waiting.remove(p)
	}
	p.request, p.waiting, p.counted = nil, nil, false
}

// errBody is the error of a request whose body cannot be read, usually because its client has
// disconnected.
var errBody = errors.New("throttlehttp: the body of a waiting request cannot be read")

// bufferBody reads a short body of r into memory, because a server of net/http notices that a
// client has disconnected only after it has read the body. It leaves a body that is long or of
// unknown length, one that the client sends only when it is asked for, and one of HTTP/2, which
// reports a closed stream in any case.
func bufferBody(r *http.Request) error {
	if r.ContentLength <= 0 || r.ContentLength > maxBufferedBody || r.ProtoMajor != 1 || r.Header["Expect"] != nil {
		return nil
	}
	read, err := io.ReadAll(r.Body) // of net/http, which ends after ContentLength
	if err != nil {
		return fmt.Errorf("%w: %w", errBody, err)
	}
	r.Body = bufferedBody{bytes.NewReader(read), r.Body}
	return nil
}

// A bufferedBody is a body that has been read into memory.
type bufferedBody struct {
	*bytes.Reader
	io.Closer
}
