package keyed

import (
	"hash/maphash"
	"math/bits"
	"net/netip"
	"strconv"
	"strings"
	"sync"

	"github.com/heed-go/heed/internal/ticks"
)

// Keys are counted by the network of their client, because a client can have any number of
// keys and of addresses in its own network, but few networks.
const (
	networkBits4 = 24 // leading bits of an IPv4 address that are its network
	networkBits6 = 48 // leading bits of an IPv6 address that are its network
)

// A networkTable decides which new keys get a place in a full table, and keeps what was
// taken from keys that lost theirs.
//
//	a new key
//	 ├─ if there is a free place                                     takes it
//	 ├─ if a network with more new keys than its own has a place     takes it from the key nearest to full
//	 └─ otherwise                                                    shares the state of its network
//
// A key that loses its place leaves what was taken from it to the state of its network,
// which it shares with all keys of the network that have no place. New keys of the network
// start with as much taken as from that state. So no units are gained by the loss of a
// place. Keys of unknown networks may always take places of each other, and leave nothing.
//
// The number of networks is bounded. The record that is replaced is the one with the fewest
// new keys of those that the hash of a network allows, so that networks with few keys cannot
// displace those with many. A network without a record has no new keys and a new state.
type networkTable[S any] struct {
	addr   func(key string) netip.Addr
	seed   maphash.Seed
	period uint64 // number of new keys after which counts are halved
	sets   uint64 // sets of networksPerSet records

	mu      sync.Mutex
	arrived uint64       // number of new keys of all networks
	records []network[S] // nil before the first known network
	unknown network[S]   // all unknown networks
}

// A network is the record of one network.
type network[S any] struct {
	id      networkID
	newKeys uint32
	period  uint64 // in which newKeys was changed
	state   *S     // nil: no key shares it, and no key has lost its place
}

// A networkID identifies a network. Two networks have the same one with a probability of
// 2^-32.
type networkID uint32

const unknownNetwork networkID = 0

const (
	networksPerSet   = 8  // records that the hash of a network allows
	placesPerNetwork = 8  // places in the table for each record
	keysPerPlace     = 16 // new keys, for each place of the table, after which counts are halved
)

// init makes n the networks of a table with the given number of places. A nil addr means
// addrOfKey.
func (n *networkTable[S]) init(places int64, addr func(string) netip.Addr) {
	if n.addr = addr; addr == nil {
		n.addr = addrOfKey
	}
	n.seed, n.period = maphash.MakeSeed(), uint64(places)*keysPerPlace
	n.sets = uint64(places/placesPerNetwork/networksPerSet + 1)
}

// allocate allocates the records. Otherwise that is done for the first known network.
func (n *networkTable[S]) allocate() { n.records = make([]network[S], n.sets*networksPerSet) }

// idOf returns the network of key.
func (n *networkTable[S]) idOf(key string) networkID {
	a := n.addr(key).Unmap().WithZone("")
	bits := networkBits6
	switch {
	case !a.IsValid():
		return unknownNetwork
	case a.Is4():
		bits = networkBits4
	}
	p, _ := a.Prefix(bits)
	return max(networkID(maphash.Comparable(n.seed, p)>>32), unknownNetwork+1)
}

// arrive counts a new key of a network.
func (n *networkTable[S]) arrive(id networkID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.arrived++
	r := n.find(id)
	if r == nil {
		r = n.replace(id)
	}
	r.newKeys, r.period = n.count(r)+1, n.arrived/n.period
}

// start returns the state with which new keys of a network start, or nil for a new state.
func (n *networkTable[S]) start(id networkID) *S {
	if id == unknownNetwork {
		return nil
	}
	return n.share(id, nil)
}

// yield returns 0 if a key of network v does not lose its place to a new key of network id.
// Otherwise it returns how many new keys v has brought, as a number of binary digits: keys
// with larger numbers lose their places first.
func (n *networkTable[S]) yield(v, id networkID) int {
	if v == id && v != unknownNetwork {
		return 0
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	own := uint32(1) // of an unknown network
	if r := n.find(id); r != nil && id != unknownNetwork {
		own = n.count(r)
	}
	switch r := n.find(v); {
	case r == nil:
		return 0
	case v == id || n.count(r) > own:
		return bits.Len32(n.count(r))
	}
	return 0
}

// share returns the state that the keys of a network without a place share. If there is
// none, it is fresh, which may be nil.
func (n *networkTable[S]) share(id networkID, fresh *S) *S {
	n.mu.Lock()
	defer n.mu.Unlock()
	r := n.find(id)
	if r == nil {
		if fresh == nil {
			return nil
		}
		r = n.replace(id)
	}
	if r.state == nil {
		r.state = fresh
	}
	return r.state
}

// leave makes s the state of a network, because a key has lost its place.
func (n *networkTable[S]) leave(id networkID, s *S) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if r := n.find(id); r != nil {
		r.state = s
	}
}

// find returns the record of a network, or nil if it has none.
func (n *networkTable[S]) find(id networkID) *network[S] {
	if id == unknownNetwork {
		return &n.unknown
	}
	set := n.set(id)
	for i := range set {
		if set[i].id == id {
			return &set[i]
		}
	}
	return nil
}

// replace returns a new record for a network that has none.
func (n *networkTable[S]) replace(id networkID) *network[S] {
	if n.records == nil {
		n.allocate()
	}
	set := n.set(id)
	r := &set[0]
	for i := range set {
		if n.count(&set[i]) < n.count(r) {
			r = &set[i]
		}
	}
	*r = network[S]{id: id, period: n.arrived / n.period}
	return r
}

// set returns the records of which one may be that of a network.
func (n *networkTable[S]) set(id networkID) []network[S] {
	if n.records == nil {
		return nil
	}
	i := uint64(id) * n.sets >> 32 * networksPerSet
	return n.records[i : i+networksPerSet]
}

// count returns the number of new keys of r, halved for each period since then.
func (n *networkTable[S]) count(r *network[S]) uint32 {
	return r.newKeys >> min(n.arrived/n.period-r.period, 31)
}

// addrOfKey returns the address in a key made by throttlehttp.IP, alone or as a part of a
// key made by throttlehttp.Composite. It returns the zero Addr for other keys.
func addrOfKey(key string) netip.Addr {
	if parts, ok := strings.CutPrefix(key, "join:"); ok {
		for parts != "" {
			digits, rest, _ := strings.Cut(parts, ":")
			n, err := strconv.Atoi(digits)
			if err != nil || n < 0 || n > len(rest) {
				return netip.Addr{}
			}
			if a := addrOfKey(rest[:n]); a.IsValid() {
				return a
			}
			parts = rest[n:]
		}
		return netip.Addr{}
	}
	text, ok := strings.CutPrefix(key, "ip:")
	if !ok {
		return netip.Addr{}
	}
	text, _, _ = strings.Cut(text, "/")
	a, _ := netip.ParseAddr(text)
	return a
}

// sharedSlot returns the bucket that the keys of a network without a place share.
func sharedSlot(n *networkTable[bucketSlot], id networkID) *bucketSlot {
	if s := n.share(id, nil); s != nil {
		return s
	}
	return n.share(id, new(bucketSlot).init(ticks.Never))
}

// addTaken takes from the bucket of a network what is taken from a key that loses its place,
// whose bucket will be full at tick tat.
func addTaken(n *networkTable[bucketSlot], id networkID, tat int64) {
	if id == unknownNetwork {
		return
	}
	s := sharedSlot(n, id)
	for old := s.tat.Load(); old < tat && !s.tat.CompareAndSwap(old, tat); {
		old = s.tat.Load()
	}
}
