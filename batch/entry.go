package batch

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/internal/httphost"
)

// An entry is a request of an Outbox. Only the sender changes it after it was submitted.
type entry struct {
	entryMeta
	body []byte
	size int64 // length of the record

	sent     sent  // the kind of the request that was sent and may have been processed
	sentAt   int64 // when it was first sent, as Unix time in milliseconds; 0 means that it was not
	attempts int   // responses that count for OutboxConfig.MaxAttempts
}

// An entryMeta is what is stored of a request as JSON.
type entryMeta struct {
	ID        uint64 `json:"-"`
	Method    string
	URL       string
	Host      string      `json:",omitempty"`
	Header    http.Header `json:",omitempty"`
	Key       string      `json:",omitempty"` // Idempotency-Key; it is also in Header
	Options   heed.RequestOptions
	Submitted int64 // Unix time in milliseconds

	// Of a request that was given up: QueuedRequest.Failure, and what entry has.
	Failure string `json:",omitempty"`
	Sent    sent   `json:",omitempty"`
	SentAt  int64  `json:",omitempty"`
}

// equal reports whether e and other were submitted by the same call.
func (e *entry) equal(other *entry) bool {
	return e.Submitted == other.Submitted && e.Method == other.Method && e.URL == other.URL && e.Key == other.Key && bytes.Equal(e.body, other.body)
}

// newEntry returns the entry of req, and reads and closes its body.
func (o *Outbox) newEntry(req *http.Request) (*entry, error) {
	if req.Body != nil {
		defer req.Body.Close()
	}
	if err := o.check(req); err != nil {
		return nil, err
	}
	e := &entry{entryMeta: entryMeta{
		Method: req.Method, URL: req.URL.String(), Host: req.Host, Header: req.Header.Clone(),
		Options: heed.OptionsFrom(req.Context()), Submitted: time.Now().UnixMilli(),
	}}
	if e.Method == "" {
		e.Method = http.MethodGet
	}
	if e.Header == nil {
		e.Header = http.Header{}
	}
	var err error
	if e.body, err = o.readBody(req); err != nil {
		return nil, err
	}
	o.addKey(e, req)
	record, err := e.record()
	e.size = int64(len(record))
	return e, err
}

// check returns an error if the Outbox cannot keep or send req.
func (o *Outbox) check(req *http.Request) error {
	u := req.URL
	switch {
	case u == nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("%w: its URL must have the scheme http or https, and a host", ErrInvalidRequest)
	case req.Method == http.MethodConnect:
		return fmt.Errorf("%w: its method is CONNECT", ErrInvalidRequest)
	case len(req.Trailer) > 0:
		return fmt.Errorf("%w: it has trailers", ErrInvalidRequest)
	}
	if _, err := http.NewRequest(req.Method, u.String(), nil); err != nil {
		return fmt.Errorf("%w: %w", ErrInvalidRequest, err)
	}
	if o.store == nil {
		return nil
	}
	if !o.c.StoreCredentials {
		if err := checkCredentials(req); err != nil {
			return err
		}
	}
	return checkText(req)
}

// checkCredentials returns an error if req has credentials.
func checkCredentials(req *http.Request) error {
	if req.URL.User != nil {
		return fmt.Errorf("%w: the URL has a user", ErrCredentials)
	}
	for name := range req.Header {
		if httphost.IsSecret(http.CanonicalHeaderKey(name)) || httphost.NamesSecret(name) {
			return fmt.Errorf("%w: the header %s", ErrCredentials, name)
		}
	}
	for query := req.URL.RawQuery; query != ""; {
		var pair string
		pair, query, _ = strings.Cut(query, "&")
		name, value, _ := strings.Cut(pair, "=")
		if plain, err := url.QueryUnescape(name); err == nil {
			name = plain
		}
		if value != "" && httphost.NamesSecret(name) {
			return fmt.Errorf("%w: the query parameter %s", ErrCredentials, name)
		}
	}
	return nil
}

// checkText returns an error if JSON would change req.
func checkText(req *http.Request) error {
	if !utf8.ValidString(req.URL.String()) || !utf8.ValidString(req.Host) {
		return fmt.Errorf("%w: its URL is not UTF-8, so the file cannot hold it", ErrInvalidRequest)
	}
	for name, values := range req.Header {
		for _, v := range values {
			if !utf8.ValidString(v) {
				return fmt.Errorf("%w: the header %s is not UTF-8, so the file cannot hold it", ErrInvalidRequest, name)
			}
		}
	}
	return nil
}

// readBody returns the body of req.
func (o *Outbox) readBody(req *http.Request) ([]byte, error) {
	if req.Body == nil || req.Body == http.NoBody {
		return nil, nil
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, o.c.MaxBody+1))
	if err != nil {
		return nil, fmt.Errorf("batch: outbox: the body of the request: %w", err)
	}
	if int64(len(body)) > o.c.MaxBody {
		return nil, fmt.Errorf("%w: OutboxConfig.MaxBody is %d bytes", ErrBodyTooLarge, o.c.MaxBody)
	}
	return body, nil
}

// addKey sets the Idempotency-Key of e, unless its method is safe.
func (o *Outbox) addKey(e *entry, req *http.Request) {
	for _, name := range [...]string{"Idempotency-Key", "X-Idempotency-Key"} {
		if e.Key = e.Header.Get(name); e.Key != "" {
			return
		}
	}
	switch e.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace:
		return
	}
	if o.c.IdempotencyKey != nil {
		e.Key = o.c.IdempotencyKey(req)
	} else {
		e.Key = newJobID().key(0)
	}
	if e.Key != "" {
		e.Header.Set("Idempotency-Key", e.Key)
	}
}

// request returns a new request for e.
func (e *entry) request(ctx context.Context) (*http.Request, error) {
	u, err := url.Parse(e.URL)
	if err != nil {
		return nil, err
	}
	req := &http.Request{Method: e.Method, URL: u, Host: e.Host, Header: e.Header.Clone(), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, ContentLength: int64(len(e.body))}
	if len(e.body) > 0 {
		req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(e.body)), nil }
		req.Body, _ = req.GetBody()
	}
	return req.WithContext(heed.WithOptions(ctx, e.Options)), nil
}

// queued returns a copy of e for the program.
func (e *entry) queued() QueuedRequest {
	req, err := e.request(context.Background())
	if err != nil { // Submit has parsed the URL
		req = nil
	}
	return QueuedRequest{ID: e.ID, Request: req, Submitted: time.UnixMilli(e.Submitted), Sent: e.sent != sentIdempotent, Failure: e.Failure}
}

// record returns the record that stores e: its number, the length of its JSON, the JSON and
// the body.
func (e *entry) record() ([]byte, error) {
	meta, err := json.Marshal(e.entryMeta)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalidRequest, err)
	}
	record := make([]byte, 0, 1+2*binary.MaxVarintLen64+len(meta)+len(e.body))
	record = binary.AppendUvarint(append(record, recordQueued), e.ID)
	record = binary.AppendUvarint(record, uint64(len(meta)))
	return append(append(record, meta...), e.body...), nil
}

// parseEntry decodes what follows the number in a record. It copies b.
func parseEntry(id uint64, b []byte) (*entry, error) {
	n, k := binary.Uvarint(b)
	if k <= 0 || n > uint64(len(b)-k) {
		return nil, errRecord
	}
	e := &entry{size: int64(len(b))}
	if err := json.Unmarshal(b[k:k+int(n)], &e.entryMeta); err != nil {
		return nil, fmt.Errorf("%w: %w", errRecord, err)
	}
	if _, err := url.Parse(e.URL); err != nil || e.Method == "" || e.Sent > sentUnsafe {
		return nil, errors.Join(errRecord, err)
	}
	e.sent, e.sentAt = e.Sent, e.SentAt
	if e.Header == nil {
		e.Header = http.Header{}
	}
	e.ID, e.body = id, bytes.Clone(b[k+int(n):])
	return e, nil
}
