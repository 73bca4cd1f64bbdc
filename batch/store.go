package batch

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/heed-go/heed/internal/journal"
)

// The kinds of records of an Outbox. The number of the request follows as a uvarint.
const (
	recordOutbox    byte = 'O' // JSON of outboxHeader instead of the number
	recordQueued    byte = 'Q' // see entry.record
	recordInFlight  byte = 'I' // sent, 1 byte; Unix time in milliseconds, 8 bytes: it will be sent
	recordUnsent    byte = 'U' // what was sent was not processed
	recordAttempted byte = 'A' // a response counts for OutboxConfig.MaxAttempts
	recordLeft      byte = 'L' // it has left the Outbox
)

// outboxVersion is the version of the records.
const outboxVersion = 1

// An outboxHeader is the first record of the file of an Outbox.
type outboxHeader struct {
	Outbox int    // outboxVersion
	NextID uint64 // at least one more than each number that was used
}

// A store keeps the requests of an Outbox on disk.
type store struct {
	// rewriting is held for reading from before a change is recorded until the entries of the
	// Outbox have it, and for writing while the file is rewritten from the entries.
	rewriting sync.RWMutex
	log       *journal.Log
	limit     int64 // length of the file above which it is rewritten; only the sender uses it
}

// The reserve that is left in the file, so that on a full disk requests that were accepted are still
// sent, and each that was sent is recorded as delivered or not.
const (
	reserveToSend   = 8 << 10 // after a request that was accepted: about 100 that are sent
	reserveToRemove = 2 * frameOverhead
)

// minRewrite is the length below which a file is not rewritten while the Outbox is open.
const minRewrite = 256 << 10

// openStore opens or creates the file at path. It returns the requests in it and the next
// number.
func openStore(path string) (*store, []*entry, uint64, error) {
	r := storeReader{entries: map[uint64]*entry{}, nextID: 1}
	log, err := journal.Open(path, r.apply)
	if err != nil {
		return nil, nil, 0, err
	}
	if !r.hasHeader {
		if err := log.AppendSync(headerRecord(1)); err != nil {
			log.Close()
			return nil, nil, 0, err
		}
	}
	return &store{log: log, limit: minRewrite}, r.sorted(), r.nextID, nil
}

// giveUp adds e to a file of requests that were given up because of reason, unless it is in it:
// the process may have ended before e was removed from its Outbox. The file has at most limit
// bytes.
func giveUp(path string, e *entry, reason error, limit int64) error {
	s, entries, nextID, err := openStore(path)
	if err != nil {
		return err
	}
	defer s.log.Close()
	if slices.ContainsFunc(entries, e.equal) {
		return nil
	}
	dead := &entry{entryMeta: e.entryMeta, body: e.body}
	dead.ID, dead.Failure, dead.Sent, dead.SentAt = nextID, storedText(reason), e.sent, e.sentAt
	record, err := dead.record()
	if err != nil {
		return err
	}
	if s.log.Size()+int64(len(record)) > limit {
		return fmt.Errorf("%s has reached OutboxConfig.MaxBytes of %d bytes", path, limit)
	}
	return s.log.AppendSync(record)
}

// A storeReader collects the requests of a file.
type storeReader struct {
	hasHeader bool
	entries   map[uint64]*entry
	nextID    uint64
	damaged   bool // records are missing
}

// skip reads that a part of the file is damaged. It may have stated of each request that it was
// sent.
func (r *storeReader) skip(int64) {
	r.hasHeader, r.damaged = true, true
	for _, e := range r.entries {
		req, err := e.request(context.Background())
		if err != nil {
			continue // parseEntry has checked it
		}
		if e.sent == sentIdempotent {
			e.sentAt = e.Submitted
		}
		e.sent = max(e.sent, (&watch{key: e.Key}).kindOf(req))
	}
}

// sorted returns the requests in order.
func (r *storeReader) sorted() []*entry {
	return slices.SortedFunc(maps.Values(r.entries), func(a, b *entry) int { return cmp.Compare(a.ID, b.ID) })
}

// apply reads a record.
func (r *storeReader) apply(record []byte) error {
	if len(record) == 0 {
		return errRecord
	}
	kind, rest := record[0], record[1:]
	if !r.hasHeader {
		var h outboxHeader
		if kind != recordOutbox || json.Unmarshal(rest, &h) != nil || h.Outbox != outboxVersion {
			return fmt.Errorf("%w: it is not an outbox of this version", ErrDamaged)
		}
		r.hasHeader, r.nextID = true, h.NextID
		return nil
	}
	id, k := binary.Uvarint(rest)
	if k <= 0 {
		return errRecord
	}
	rest = rest[k:]
	if kind == recordQueued {
		e, err := parseEntry(id, rest)
		if err != nil {
			return err
		}
		r.entries[id], r.nextID = e, max(r.nextID, id+1)
		return nil
	}
	e := r.entries[id]
	switch {
	case e == nil && r.damaged:
	case e == nil:
		return errRecord
	case kind == recordInFlight && len(rest) == 9 && rest[0] <= byte(sentUnsafe):
		e.sent, e.sentAt = sent(rest[0]), int64(binary.LittleEndian.Uint64(rest[1:]))
	case kind == recordUnsent:
		e.sent, e.sentAt = sentIdempotent, 0
	case kind == recordAttempted:
		e.attempts++
	case kind == recordLeft:
		delete(r.entries, id)
	default:
		return errRecord
	}
	return nil
}

// begin and end enclose a change of the file and of the entries.
func (s *store) begin() { s.rewriting.RLock() }
func (s *store) end()   { s.rewriting.RUnlock() }

// add stores e on disk.
func (s *store) add(e *entry) error {
	record, err := e.record()
	if err != nil {
		return err
	}
	return s.log.AppendWithReserve(record, true, reserveToSend)
}

// send records on disk that a request of kind will be sent. A power failure that lost the
// record of one with an Idempotency-Key would also lose when KeyLifetime began.
func (s *store) send(e *entry, kind sent, at int64) error {
	return s.log.AppendWithReserve(inFlightRecord(e.ID, kind, at), true, reserveToRemove)
}

// note records a change of e that has no content. durable means that it must be on disk.
func (s *store) note(kind byte, e *entry, durable bool) error {
	record := binary.AppendUvarint([]byte{kind}, e.ID)
	if durable {
		return s.log.AppendSync(record)
	}
	return s.log.Append(record)
}

// rewriteIfLong rewrites the file if records of requests that have left are most of it.
// size is that of the entries. If it fails, the file stays as it is.
func (s *store) rewriteIfLong(size int64, snapshot func() ([]*entry, uint64)) error {
	if s.log.Size() <= max(s.limit, 2*size) {
		return nil
	}
	s.rewriting.Lock()
	defer s.rewriting.Unlock()
	s.limit = 2 * s.log.Size() // if it fails
	if err := s.log.Rewrite(storeRecords(snapshot())); err != nil {
		return err
	}
	s.limit = minRewrite
	return nil
}

// close removes requests that have left from the file, and closes it.
func (s *store) close(entries []*entry, nextID uint64) error {
	s.rewriting.Lock()
	defer s.rewriting.Unlock()
	_ = s.log.Rewrite(storeRecords(entries, nextID)) // the file is valid if it fails
	return s.log.Close()
}

// storeRecords returns the records of a file with entries.
func storeRecords(entries []*entry, nextID uint64) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		if !yield(headerRecord(nextID)) {
			return
		}
		for _, e := range entries {
			for _, record := range e.records() {
				if !yield(record) {
					return
				}
			}
		}
	}
}

// records returns the records of e.
func (e *entry) records() [][]byte {
	queued, err := e.record()
	if err != nil { // Submit has encoded it
		panic(err)
	}
	all := [][]byte{queued}
	if e.sent != sentIdempotent {
		all = append(all, inFlightRecord(e.ID, e.sent, e.sentAt))
	}
	for range e.attempts {
		all = append(all, binary.AppendUvarint([]byte{recordAttempted}, e.ID))
	}
	return all
}

func headerRecord(nextID uint64) []byte {
	text, _ := json.Marshal(outboxHeader{Outbox: outboxVersion, NextID: nextID}) // never fails
	return append([]byte{recordOutbox}, text...)
}

func inFlightRecord(id uint64, kind sent, at int64) []byte {
	record := append(binary.AppendUvarint([]byte{recordInFlight}, id), byte(kind))
	return binary.LittleEndian.AppendUint64(record, uint64(at))
}
