package batch

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/heed-go/heed/internal/explain"
	"github.com/heed-go/heed/internal/journal"
	"github.com/heed-go/heed/throttle"
)

// The kinds of records of a checkpoint. The number of the item follows as a uvarint.
const (
	recordHeader byte = 'H' // JSON of checkpointHeader instead of the number
	recordStart  byte = 'S' // identity, 4 bytes
	recordSent   byte = 'R' // sent, 1 byte; Unix time in milliseconds, 8 bytes: a request reached the Transport, or will be sent
	recordDone   byte = 'D' // value of the item
	recordFailed byte = 'F' // 1 if it must not be repeated, else 0; text of the error
	recordUndone byte = 'N' // it was interrupted, and what was sent was not processed or is safe to repeat
)

// checkpointVersion is the version of the records.
const checkpointVersion = 1

// A checkpointHeader is the first record of a checkpoint.
type checkpointHeader struct {
	Checkpoint int // checkpointVersion
	Job        string
	ID         jobID
}

// A checkpoint records in a file what was done of a job.
type checkpoint struct {
	log      *journal.Log
	o        Options
	id       jobID
	syncedAt atomic.Int64 // when a record was last written to disk, as Unix time in nanoseconds

	// Written by openCheckpoint, and then only read.
	hasHeader bool
	items     []itemState // by index
	doubts    map[int]itemDoubt
	records   int
	lists     bool // the reasons of all failures are kept
}

// An itemState is what earlier processes recorded of an item.
type itemState struct {
	phase    phase
	sent     sent
	observed bool // a request has reached the Transport since the item was last begun
	identity uint32
}

// An itemDoubt holds what is needed of an item that is not done, and has sent a request or
// failed.
type itemDoubt struct {
	sentAt int64  // when the first request with an Idempotency-Key was sent, as Unix time in milliseconds
	reason string // text of the error if the item failed and may have to be reported again
}

// phase is how far an item got.
type phase uint8

const (
	phaseNone phase = iota
	phaseStarted
	phaseFailed
	phaseDone
)

// maxReason is the maximum length of the stored text of an error.
const maxReason = 256

var errRecord = fmt.Errorf("%w: a record is invalid", ErrDamaged)

// openCheckpoint opens or creates the file, and calls restore, unless it is nil, with the
// stored value of each item that is done.
func openCheckpoint(o Options, restore func(int, []byte) error) (*checkpoint, error) {
	c := &checkpoint{o: o, id: newJobID(), doubts: map[int]itemDoubt{}}
	log, err := journal.Open(o.Checkpoint, func(record []byte) error { return c.apply(record, restore) })
	if err != nil {
		return nil, fileError("checkpoint", err)
	}
	c.log = log
	if !c.hasHeader {
		text, err := json.Marshal(checkpointHeader{Checkpoint: checkpointVersion, Job: o.Job, ID: c.id})
		if err == nil {
			err = log.AppendSync(append([]byte{recordHeader}, text...))
		}
		if err != nil {
			log.Close()
			return nil, fileError("checkpoint", err)
		}
	}
	return c, nil
}

// apply reads a record of an earlier process.
func (c *checkpoint) apply(record []byte, restore func(int, []byte) error) error {
	c.records++
	if len(record) == 0 {
		return errRecord
	}
	kind, rest := record[0], record[1:]
	if !c.hasHeader {
		return c.applyHeader(kind, rest)
	}
	n, k := binary.Uvarint(rest)
	if k <= 0 || n >= uint64(c.records)+maxAhead {
		return errRecord
	}
	index, rest := int(n), rest[k:]
	if missing := index + 1 - len(c.items); missing > 0 {
		c.items = append(c.items, make([]itemState, missing)...)
	}
	s := &c.items[index]
	switch {
	case kind == recordStart && len(rest) == 4:
		s.identity = binary.LittleEndian.Uint32(rest)
		s.phase, s.observed = phaseStarted, false
	case kind == recordSent && len(rest) == 9 && rest[0] <= byte(sentUnsafe):
		c.applySent(index, sent(rest[0]), int64(binary.LittleEndian.Uint64(rest[1:])))
	case kind == recordFailed && len(rest) >= 1:
		c.applyFailed(index, rest[0] == 1, string(rest[1:]))
	case kind == recordUndone && len(rest) == 0:
		c.settle(index)
	case kind == recordDone:
		s.phase = phaseDone
		delete(c.doubts, index)
		if restore != nil {
			return restore(index, rest)
		}
	default:
		return errRecord
	}
	return nil
}

// maxAhead bounds the numbers of items in a file: a number is less than that of the records
// before it plus the number of workers, unless the file is damaged.
const maxAhead = 1 << 20

func (c *checkpoint) applyHeader(kind byte, text []byte) error {
	var h checkpointHeader
	if kind != recordHeader || json.Unmarshal(text, &h) != nil || h.Checkpoint != checkpointVersion {
		return fmt.Errorf("%w: it is not a checkpoint of this version", ErrDamaged)
	}
	if h.Job != c.o.Job && !c.lists {
		return fmt.Errorf("%w: it was made with Options.Job %q, which is %q now", ErrOtherJob, h.Job, c.o.Job)
	}
	c.id, c.hasHeader = h.ID, true
	return nil
}

func (c *checkpoint) applySent(index int, kind sent, at int64) {
	s, d := &c.items[index], c.doubts[index]
	s.sent, s.observed = max(s.sent, kind), true
	if d.sentAt == 0 && kind == sentKeyed {
		d.sentAt = at
	}
	if kind != sentIdempotent {
		c.doubts[index] = d
	}
}

// applyFailed reads that an item failed. If it may be repeated, its requests that are not
// safe to repeat were rejected.
func (c *checkpoint) applyFailed(index int, doubt bool, reason string) {
	s, d := &c.items[index], c.doubts[index]
	s.phase = phaseFailed
	if !doubt {
		c.settle(index)
	}
	if doubt || c.lists || s.sent == sentKeyed || c.o.Repeat == RepeatNever {
		d.reason = reason
	}
	c.doubts[index] = d
}

// settle reads that those requests of an item that must not be repeated were not processed.
func (c *checkpoint) settle(index int) {
	if s := &c.items[index]; s.sent == sentUnsafe {
		s.sent = sentIdempotent
		if c.doubts[index].sentAt != 0 {
			s.sent = sentKeyed
		}
	}
}

// Failures returns the items that a checkpoint file has as failed, or as begun and not finished
// (ErrInterrupted), in the order of the items. It only reads the file; while a job uses it, items
// that are being processed are among them. Run with RepeatAlways processes them again.
//
// The error matches ErrDamaged if the file is not a checkpoint or is damaged. If a part can be
// read, the failures are those before and after the damage; what the damage hides of an item is
// not known.
func Failures(path string) ([]ItemError, error) {
	c := &checkpoint{doubts: map[int]itemDoubt{}, lists: true}
	apply := func(record []byte) error { return c.apply(record, nil) }
	err := journal.ReadFile(path, apply, func(int64) { c.hasHeader = true }) // it may be what is damaged
	return c.failures(), fileError("checkpoint", err)
}

func (c *checkpoint) failures() (all []ItemError) {
	for i, s := range c.items {
		switch s.phase {
		case phaseStarted:
			all = append(all, ItemError{i, ErrInterrupted})
		case phaseFailed:
			all = append(all, ItemError{i, errors.New(c.doubts[i].reason)})
		}
	}
	return all
}

// A verdict states what must be done with an item. At most one of the first three fields is
// set; if none is, the item was not begun.
type verdict struct {
	done     bool
	failed   error // the item is not repeated, for this reason
	repeated bool  // the item is processed again
	sent     sent  // what earlier processes have sent, if it is processed again
	identity uint32
}

// resume returns what must be done with an item. It returns ErrOtherJob if the item is
// another one than that of the file.
func (c *checkpoint) resume(index int, item any) (v verdict, err error) {
	if v.identity, err = identityOf(item, c.o.ItemKey); err != nil {
		return v, fmt.Errorf("batch: item %d has no JSON that recognizes it: set Options.ItemKey: %w", index, err)
	}
	if index >= len(c.items) || c.items[index].phase == phaseNone {
		return v, nil
	}
	s, d := c.items[index], c.doubts[index]
	if v.identity != s.identity {
		return v, fmt.Errorf("%w: item %d differs from the one in %s: see Options.ItemKey", ErrOtherJob, index, c.o.Checkpoint)
	}
	switch {
	case s.phase == phaseDone:
		v.done = true
	case c.repeats(s, d):
		v.repeated, v.sent = true, s.sent
	case s.phase == phaseFailed:
		v.failed = fmt.Errorf("batch: failed in an earlier process and not repeated: %s", d.reason)
	default:
		v.failed = ErrInterrupted
	}
	return v, nil
}

// repeats reports whether an item that is not done is processed again.
func (c *checkpoint) repeats(s itemState, d itemDoubt) bool {
	switch c.o.Repeat {
	case RepeatAlways:
		return true
	case RepeatNever:
		return false
	}
	return s.observed && (s.sent == sentIdempotent || s.sent == sentKeyed && remembersKey(d.sentAt, c.o.KeyLifetime))
}

// remembersKey reports whether a server remembers an Idempotency-Key that was first sent at a
// Unix time in milliseconds. A time far in the future means that the clock was set back, so
// that the age of the key is not known.
func remembersKey(sentAt int64, lifetime time.Duration) bool {
	return lifetime < 0 || time.Since(time.UnixMilli(sentAt)).Abs() < lifetime
}

// start records that an item begins.
func (c *checkpoint) start(index int, identity uint32) error {
	record := binary.LittleEndian.AppendUint32(newRecord(recordStart, index), identity)
	return c.appendWithReserve(record, c.o.Repeat == RepeatNever, c.reserve())
}

// reserve returns the space that must be left in the file when an item begins, so that all that
// follows of the items that are being processed can be recorded on a full disk.
func (c *checkpoint) reserve() int64 { return int64(c.o.Workers) * maxItemRecords }

// maxItemRecords is the maximum length of the records of an item after it began, without its
// value: a request that reached the Transport, two kinds that were sent, and the failure.
const maxItemRecords = 3*(frameOverhead+9) + frameOverhead + maxReason

// frameOverhead is the maximum length of a frame of package journal with a record, without
// what follows the number of the item.
const frameOverhead = 24 + 2*binary.MaxVarintLen64 + 2

// send records that a request of an item has reached the Transport (sentIdempotent), or that
// one that is not idempotent will be sent. The record of one that must not be repeated is on disk before the request is sent. That of one with an
// Idempotency-Key need not be: if a power failure loses it, the request is sent again with
// the same key.
func (c *checkpoint) send(index int, s sent) error {
	record := append(newRecord(recordSent, index), byte(s))
	return c.append(binary.LittleEndian.AppendUint64(record, uint64(time.Now().UnixMilli())), s == sentUnsafe)
}

// done records that an item is done.
func (c *checkpoint) done(index int, value []byte) error {
	return c.append(append(newRecord(recordDone, index), value...), false)
}

// append adds a record, for which the item that it belongs to has left a reserve.
func (c *checkpoint) append(record []byte, durable bool) error {
	return c.appendWithReserve(record, durable, 0)
}

// appendWithReserve adds a record and leaves a reserve. The record is on disk on return if durable is
// set, or else after about syncInterval if other records follow.
func (c *checkpoint) appendWithReserve(record []byte, durable bool, reserve int64) error {
	now := time.Now().UnixNano()
	last := c.syncedAt.Load()
	isOld := now-last >= int64(syncInterval) || now < last // the clock may have been set back
	durable = durable || isOld && c.syncedAt.CompareAndSwap(last, now)
	return c.log.AppendWithReserve(record, durable, reserve)
}

// syncInterval is the time after which records are written to disk, so that a power failure
// does not lose much of what was done.
const syncInterval = time.Second

// undone records that an item was interrupted and that what was sent of it is safe to repeat.
func (c *checkpoint) undone(index int) error { return c.append(newRecord(recordUndone, index), false) }

// fail records that an item has failed. doubt means that it must not be repeated.
func (c *checkpoint) fail(index int, reason error, doubt bool) error {
	record := append(newRecord(recordFailed, index), 0)
	if doubt {
		record[len(record)-1] = 1
	}
	return c.append(append(record, storedText(reason)...), false)
}

// storedText returns the text of an error for a file: without the user, query and fragment of
// URLs and without the keys of limits, and at most maxReason bytes long.
func storedText(err error) string {
	text := explain.ErrorWithoutKeys(err, func(err error) string {
		if r, ok := err.(*throttle.RejectedError); ok {
			return r.Key
		}
		return ""
	})
	return strings.ToValidUTF8(text[:min(len(text), maxReason)], "")
}

func newRecord(kind byte, index int) []byte {
	return binary.AppendUvarint([]byte{kind}, uint64(index))
}
