package rules

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"hash/maphash"
	"strconv"

	"github.com/heed-go/heed/sketch"
)

// nameKey makes names of keys that tell nothing of them.
type nameKey [32]byte

func newNameKey() (k nameKey) {
	rand.Read(k[:])
	return k
}

// of returns 64 bits of a keyed hash. Addresses are few enough to try them all, so that
// a hash without a key would tell them.
func (k nameKey) of(key string) string {
	h := hmac.New(sha256.New, k[:])
	h.Write([]byte(key))
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// longestName is how much is kept of a key to be told from others, in bytes. Strangers
// make keys, and may make them of a megabyte.
const longestName = 256

// named returns key, or its beginning and a hash if it is long.
func (t *Tally) named(key string) string {
	if len(key) <= longestName {
		return key
	}
	h := strconv.FormatUint(maphash.String(t.seed, key), 16)
	return key[:longestName-len(h)-1] + "~" + h
}

// NameOf returns the name under which TopRefused shows key. It differs from Tally to
// Tally, and is another one after a restart.
func (t *Tally) NameOf(key string) string {
	t.once.Do(t.begin)
	return t.name.of(t.named(key))
}

// TopRefused returns the k keys that were refused most often, or would have been but for
// a shadow, most often first. Keys are shown by names that tell nothing of them; NameOf
// tells whether one is somebody who is known. See sketch.Top for how exact it is.
func (t *Tally) TopRefused(k int) []sketch.Hit {
	all := t.TopRefusedInClear(k)
	for i := range all {
		all[i].Key = t.name.of(all[i].Key)
	}
	return all
}

// TopRefusedInClear is TopRefused with the keys as clients sent them, or the beginnings
// of those that are longer than 256 bytes: do not write them where strangers read.
func (t *Tally) TopRefusedInClear(k int) []sketch.Hit {
	t.once.Do(t.begin)
	return t.top.Load().First(k)
}
