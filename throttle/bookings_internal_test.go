package throttle

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestBookings_book checks the latest position, and the latest one after which nothing more can be
// returned, after claims at positions with a cost.
func TestBookings_book(t *testing.T) {
	var b bookings
	for _, s := range []struct{ position, cost, last, lastGap int64 }{
		{10, 10, 10, 0}, // follows the beginning
		{15, 5, 15, 0},  // follows the last
		{30, 10, 30, 0}, // after a gap, from 20
		{32, 5, 32, 30}, // overlaps the last
		{20, 3, 32, 30}, // into the gap
		{31, 1, 32, 31}, // later than that gap
		{32, 1, 32, 32}, // at the last
		{40, 8, 40, 32},
		{41, 2, 41, 40},
	} {
		b.book(s.position, s.cost)
		require.Equal(t, []int64{s.last, s.lastGap}, []int64{b.last, b.lastGap}, "%+v", s)
	}
}
