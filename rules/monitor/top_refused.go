package monitor

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"hash/maphash"
	"strconv"

	"github.com/heed-go/heed/sketch"
)

// pseudonymKey makes names of keys that tell nothing of them.
type pseudonymKey [32]byte

func newPseudonymKey() (k pseudonymKey) {
	rand.Read(k[:])
	return k
}

// pseudonym returns 64 bits of a keyed hash. Addresses are few enough to try them all, so that
// a hash without a key would tell them.
func (k pseudonymKey) pseudonym(key string) string {
	h := hmac.New(sha256.New, k[:])
	h.Write([]byte(key))
	return hex.EncodeToString(h.Sum(nil)[:8])
}

// maxKeyLen is how much is kept of a key to be told from others, in bytes. Strangers
// make keys, and may make them of a megabyte.
const maxKeyLen = 256

// truncateKey returns key, or its beginning and a hash if it is long.
func (t *Stats) truncateKey(key string) string {
	if len(key) <= maxKeyLen {
		return key
	}
	h := strconv.FormatUint(maphash.String(t.seed, key), 16)
	return key[:maxKeyLen-len(h)-1] + "~" + h
}

// Pseudonym returns the name under which TopRefused shows key. It differs from Stats to
// Stats, and is another one after a restart.
func (t *Stats) Pseudonym(key string) string {
	t.once.Do(t.setup)
	return t.pseudonyms.pseudonym(t.truncateKey(key))
}

// TopRefused returns the k keys that were refused most often, or would have been but for
// a shadow, most often first. Keys are shown by names that tell nothing of them; Pseudonym
// tells whether one is somebody who is known. See sketch.TopK for how exact it is.
func (t *Stats) TopRefused(k int) []sketch.Item {
	all := t.TopRefusedCleartext(k)
	for i := range all {
		all[i].Key = t.pseudonyms.pseudonym(all[i].Key)
	}
	return all
}

// TopRefusedCleartext is TopRefused with the keys as clients sent them, or the beginnings
// of those that are longer than 256 bytes: do not write them where strangers read.
func (t *Stats) TopRefusedCleartext(k int) []sketch.Item {
	t.once.Do(t.setup)
	return t.top.Load().First(k)
}
