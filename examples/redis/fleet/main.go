// Fleet shows three HTTP servers that share one limit through Redis: a client has 6
// requests per minute, on all servers together. Then Redis fails, and each server uses a
// third of the limit. Then Redis recovers with its data.
package main

import (
	"fmt"
	"time"

	"github.com/heed-go/heed/examples/redis/server"
)

const servers = 3

func main() {
	url, stop := server.Start()
	defer stop()
	var link redisLink
	var fleet []*node
	for range servers {
		n := start(url, &link)
		defer n.Close()
		fleet = append(fleet, n)
	}
	fmt.Println("Redis is there: one limit, whoever answers")
	sendRequests(fleet, "ann", 8)

	link.down.Store(true)
	fmt.Println("Redis is away: each server has a third of the limit")
	sendRequests(fleet, "bob", 8)

	link.down.Store(false)
	for end := time.Now().Add(5 * time.Second); anyDegraded(fleet) && time.Now().Before(end); {
		time.Sleep(50 * time.Millisecond)
	}
	fmt.Println("Redis is back, and has not forgotten ann")
	sendRequests(fleet, "ann", 2)
	sendRequests(fleet, "cid", 2)
}

// sendRequests sends requests of a client to the servers in turn.
func sendRequests(fleet []*node, client string, times int) {
	for i := range times {
		n := i % len(fleet)
		resp := fleet[n].get(client)
		fmt.Printf("  %s asks server %d: %d, %s of %s left", client, n+1, resp.StatusCode,
			resp.Header.Get("X-RateLimit-Remaining"), resp.Header.Get("X-RateLimit-Limit"))
		if fleet[n].degraded.Load() {
			fmt.Print(", decided without Redis")
		}
		if after := resp.Header.Get("Retry-After"); after != "" {
			fmt.Print(", again in ", after, " s")
		}
		fmt.Println()
	}
}

// anyDegraded reports whether any server still decides without Redis.
func anyDegraded(fleet []*node) (any bool) {
	for _, n := range fleet {
		n.get("somebody else")
		any = any || n.degraded.Load()
	}
	return any
}
