// Package networks counts the keys of a table by the network of their client, so that a client that
// invents keys denies only clients of its own network. Package keyed and Mode Eventual of throttleredis use it.
package networks

import (
	"hash/maphash"
	"math/bits"
	"net/netip"
	"strconv"
	"strings"
	"sync"
)

// Keys are counted by the network of their client, because a client can have any number of
// keys and of addresses in its own network, but few networks.
const (
	networkBits4 = 24 // leading bits of an IPv4 address that are its network
	networkBits6 = 48 // leading bits of an IPv6 address that are its network
)

// A Table decides which new keys get a place in a full table, and keeps what was
// taken from keys that lost theirs.
//
//	a new key
//	 ├─ if there is a free place                                     takes it
//	 ├─ if a network with more new keys than its own has a place     takes it from the key nearest to full
//	 └─ otherwise                                                    shares the state of its network
//
// A key that loses its place leaves what was taken from it to the state of its network,
// which it shares with all keys of the network that have no place. New keys of the network
// Start with as much taken as from that state. So no units are gained by the loss of a
// place. Keys of unknown networks may always take places of each other, and leave nothing.
//
// The number of networks is bounded. The record that is replaced is the one with the fewest
// new keys of those that the hash of a network allows, so that networks with few keys cannot
// displace those with many. A network without a record has no new keys and a new state.
type Table[S any] struct {
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
	id      ID
	newKeys uint32
	period  uint64 // in which newKeys was changed
	state   *S     // nil: no key shares it, and no key has lost its place
}

// A ID identifies a network. Two networks have the same one with a probability of
// 2^-32.
type ID uint32

// Unknown is the network of keys without an address.
const Unknown ID = 0

const (
	networksPerSet   = 8  // records that the hash of a network allows
	placesPerNetwork = 8  // places in the table for each record
	keysPerPlace     = 16 // new keys, for each place of the table, after which counts are halved
)

// Init makes n the networks of a table with the given number of places. A nil addr means
// AddrOf.
func (n *Table[S]) Init(places int64, addr func(string) netip.Addr) {
	if n.addr = addr; addr == nil {
		n.addr = AddrOf
	}
	n.seed, n.period = maphash.MakeSeed(), uint64(places)*keysPerPlace
	n.sets = uint64(places/placesPerNetwork/networksPerSet + 1)
}

// Allocate allocates the records. Otherwise that is done for the first known network.
func (n *Table[S]) Allocate() { n.records = make([]network[S], n.sets*networksPerSet) }

// IDOf returns the network of key.
func (n *Table[S]) IDOf(key string) ID {
	a := n.addr(key).Unmap().WithZone("")
	bits := networkBits6
	switch {
	case !a.IsValid():
		return Unknown
	case a.Is4():
		bits = networkBits4
	}
	p, _ := a.Prefix(bits)
	return max(ID(maphash.Comparable(n.seed, p)>>32), Unknown+1)
}

// Arrive counts a new key of a network.
func (n *Table[S]) Arrive(id ID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.arrived++
	r := n.find(id)
	if r == nil {
		r = n.replace(id)
	}
	r.newKeys, r.period = n.count(r)+1, n.arrived/n.period
}

// Start returns the state with which new keys of a network start, or nil for a new state.
func (n *Table[S]) Start(id ID) *S {
	if id == Unknown {
		return nil
	}
	return n.Share(id, nil)
}

// Yield returns 0 if a key of network v does not lose its place to a new key of network id.
// Otherwise it returns how many new keys v has brought, as a number of binary digits: keys
// with larger numbers lose their places first.
func (n *Table[S]) Yield(v, id ID) int {
	if v == id && v != Unknown {
		return 0
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	own := uint32(1) // of an unknown network
	if r := n.find(id); r != nil && id != Unknown {
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

// Share returns the state that the keys of a network without a place share. If there is
// none, it is fresh, which may be nil.
func (n *Table[S]) Share(id ID, fresh *S) *S {
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

// Leave makes s the state of a network, because a key has lost its place.
func (n *Table[S]) Leave(id ID, s *S) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if r := n.find(id); r != nil {
		r.state = s
	}
}

// find returns the record of a network, or nil if it has none.
func (n *Table[S]) find(id ID) *network[S] {
	if id == Unknown {
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
func (n *Table[S]) replace(id ID) *network[S] {
	if n.records == nil {
		n.Allocate()
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
func (n *Table[S]) set(id ID) []network[S] {
	if n.records == nil {
		return nil
	}
	i := uint64(id) * n.sets >> 32 * networksPerSet
	return n.records[i : i+networksPerSet]
}

// count returns the number of new keys of r, halved for each period since then.
func (n *Table[S]) count(r *network[S]) uint32 {
	return r.newKeys >> min(n.arrived/n.period-r.period, 31)
}

// AddrOf returns the address in a key made by throttlehttp.IP, alone or as a part of a
// key made by throttlehttp.Composite. It returns the zero Addr for other keys.
func AddrOf(key string) netip.Addr {
	if parts, ok := strings.CutPrefix(key, "join:"); ok {
		for parts != "" {
			digits, rest, _ := strings.Cut(parts, ":")
			n, err := strconv.Atoi(digits)
			if err != nil || n < 0 || n > len(rest) {
				return netip.Addr{}
			}
			if a := AddrOf(rest[:n]); a.IsValid() {
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
