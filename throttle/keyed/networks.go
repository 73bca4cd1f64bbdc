package keyed

import (
	"github.com/heed-go/heed/internal/networks"
	"github.com/heed-go/heed/internal/ticks"
)

// sharedSlot returns the bucket that the keys of a network without a place share.
func sharedSlot(n *networks.Table[bucketSlot], id networks.ID) *bucketSlot {
	if s := n.Share(id, nil); s != nil {
		return s
	}
	return n.Share(id, new(bucketSlot).init(ticks.Never))
}

// addTaken takes from the bucket of a network what is taken from a key that loses its place,
// whose bucket will be full at tick tat.
func addTaken(n *networks.Table[bucketSlot], id networks.ID, tat int64) {
	if id != networks.Unknown {
		ticks.StoreMax(&sharedSlot(n, id).tat, tat)
	}
}
