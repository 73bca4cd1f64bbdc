package batch

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"hash/crc32"
)

// An Item describes the item that a function processes for Run or Map.
type Item struct {
	// Index is the position of the item in the sequence, starting at 0.
	Index int

	// IdempotencyKey is a key for the Idempotency-Key header, in the form of a UUID. It is
	// the same each time that the item is processed with the same checkpoint file, also by
	// another process. A function that sends several requests that are not idempotent must
	// append a suffix that differs for each: a server may answer a second request with the
	// same key with the first response.
	IdempotencyKey string

	// Repeated means that the item was begun before and not finished: by an earlier process,
	// or before a pause. A part of its requests may have been processed.
	Repeated bool
}

type itemKey struct{}

// ItemFrom returns the item that ctx belongs to. It returns the zero Item if ctx is not the
// context of a function that Run or Map called.
func ItemFrom(ctx context.Context) Item {
	item, _ := ctx.Value(itemKey{}).(*Item)
	if item == nil {
		return Item{}
	}
	return *item
}

// A jobID makes the idempotency keys of a job different from those of other jobs.
type jobID [16]byte

func newJobID() (id jobID) {
	rand.Read(id[:]) // never fails
	return id
}

// key returns the idempotency key of number n: a UUID of version 4, whose random bits are
// the hash of the random id and n.
func (id jobID) key(n uint64) string {
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(id[:], n))
	u := sum[:16]
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	s := hex.EncodeToString(u)
	return s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]
}

// identityOf returns a checksum that recognizes item when a job continues: of the string
// that name returns, or of the JSON of item if name is nil.
func identityOf(item any, name func(any) string) (uint32, error) {
	if name != nil {
		return crc32.ChecksumIEEE([]byte(name(item))), nil
	}
	if s, ok := item.(string); ok {
		return crc32.ChecksumIEEE([]byte(s)), nil
	}
	text, err := json.Marshal(item)
	return crc32.ChecksumIEEE(text), err
}
