package throttleredis

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var files embed.FS

// A script decides on one or several limits. There is one for each list of algorithms,
// whatever the limits are, so that Redis keeps few of them.
type script struct{ text, sha string }

// arguments is how many a limit of each algorithm has.
var arguments = map[string]int{
	"tokenbucket":    3,
	"refillbucket":   4,
	"leakybucket":    6,
	"nginx":          3,
	"fixedwindow":    7,
	"slidinglog":     5,
	"slidingcounter": 3,
	"inflight":       2,
	"warmup":         8,
}

var scripts sync.Map // from the names of algorithms to *script

// scriptOf returns the script for limits of the given algorithms, in their order: each
// algorithm is a file that says how to check, take and settle, and knows of no other.
func scriptOf(algorithms ...string) *script {
	name := strings.Join(algorithms, "+")
	if s, ok := scripts.Load(name); ok {
		return s.(*script)
	}
	var text strings.Builder
	text.WriteString(read("head"))
	has := map[string]bool{}
	for _, a := range algorithms {
		if !has[a] {
			fmt.Fprintf(&text, "\nlocal %s = (function()\n%send)()\n", a, read(a))
			has[a] = true
		}
	}
	sizes := make([]string, len(algorithms))
	for i, a := range algorithms {
		sizes[i] = strconv.Itoa(arguments[a])
	}
	fmt.Fprintf(&text, "\nlocal limits, sizes = {%s}, {%s}\n\n%s", strings.Join(algorithms, ", "), strings.Join(sizes, ", "), read("tail"))
	sum := sha1.Sum([]byte(text.String()))
	s, _ := scripts.LoadOrStore(name, &script{text.String(), hex.EncodeToString(sum[:])})
	return s.(*script)
}

// read returns the text of an embedded file.
func read(name string) string {
	text, err := files.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic("throttleredis: " + err.Error()) // a file of ours: any test finds it
	}
	return string(text)
}

// run runs s, by its hash if the server has it.
func (s *script) run(ctx context.Context, c redis.Scripter, keys []string, args []any) (string, error) {
	reply, err := c.EvalSha(ctx, s.sha, keys, args...).Text()
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		return c.Eval(ctx, s.text, keys, args...).Text()
	}
	return reply, err
}
