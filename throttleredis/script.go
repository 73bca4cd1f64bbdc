package throttleredis

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

//go:embed lua/*.lua
var luaFiles embed.FS

// A script decides on one or several limits. There is one for each list of algorithms,
// whatever the limits are, so that Redis keeps few of them.
type script struct {
	text, sha       string
	textArg, shaArg any // the same
}

// algorithms are the files of that name.
var algorithms = map[string]struct {
	arguments int  // of a limit
	divides   bool // it needs division.lua
	format    int  // of what is stored: a new one when a script cannot read the old one
}{
	"tokenbucket":    {arguments: 3},
	"refillbucket":   {arguments: 4},
	"leakybucket":    {arguments: 6},
	"tickqueue":      {arguments: 4, divides: true},
	"nginx":          {arguments: 3},
	"fixedwindow":    {arguments: 7},
	"slidinglog":     {arguments: 5, divides: true, format: 2},
	"slidingcounter": {arguments: 3, divides: true},
	"concurrency":    {arguments: 2, format: 2},
	"warmup":         {arguments: 9},
	"ban":            {arguments: 5},
}

var scripts sync.Map // from the names of algorithms to *script

// scriptOf returns the script for limits of the given algorithms, in their order. Each
// algorithm is a file with functions that check, take and settle: see lua/head.lua.
func scriptOf(names ...string) *script {
	list := strings.Join(names, ", ")
	if s, ok := scripts.Load(list); ok {
		return s.(*script)
	}
	text := compose(names, list)
	s, _ := scripts.LoadOrStore(list, newScript(text))
	return s.(*script)
}

func newScript(text string) *script {
	sum := sha1.Sum([]byte(text))
	sha := hex.EncodeToString(sum[:])
	return &script{text, sha, text, sha}
}

func compose(names []string, list string) string {
	var text strings.Builder
	text.WriteString(readLua("head"))
	sizes := make([]string, len(names))
	for i, name := range names {
		a := algorithms[name]
		sizes[i] = strconv.Itoa(a.arguments)
		if a.divides && !strings.Contains(text.String(), readLua("division")) {
			text.WriteString("\n" + readLua("division"))
		}
		if !slices.Contains(names[:i], name) {
			fmt.Fprintf(&text, "\nlocal %s = (function()\n%send)()\n", name, readLua(name))
		}
	}
	if len(names) == 1 {
		fmt.Fprintf(&text, "\nlocal limit, size = %s, %s\n\n%s", list, sizes[0], readLua("single"))
		return text.String()
	}
	fmt.Fprintf(&text, "\nlocal limits, sizes = {%s}, {%s}\n\n%s", list, strings.Join(sizes, ", "), readLua("multi"))
	return text.String()
}

// readLua returns the text of an embedded file.
func readLua(name string) string {
	text, err := luaFiles.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic("throttleredis: " + err.Error()) // a file of ours: any test finds it
	}
	return string(text)
}

// A processor is a client that can be handed a command. All of go-redis can.
type processor interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// run runs s, by its hash if the server has it.
func (s *script) run(ctx context.Context, c redis.Scripter, k *call) (string, error) {
	reply, err := s.send(ctx, c, k, evalSHA, s.shaArg)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		return s.send(ctx, c, k, eval, s.textArg)
	}
	return reply, err
}

var evalSHA, eval any = "evalsha", "eval"

// send hands a processor the command as it is. What others copy and allocate for that,
// and for an answer of unknown type, is a third of what a decision costs here.
func (s *script) send(ctx context.Context, c redis.Scripter, k *call, command, body any) (string, error) {
	if p, ok := c.(processor); ok {
		cmd := redis.NewStringCmd(ctx, k.command(command, body)...)
		cmd.SetFirstKeyPos(3)
		_ = p.Process(ctx, cmd) // is the command's error
		return cmd.Result()
	}
	if command == eval {
		return c.Eval(ctx, s.text, k.keys(), k.arguments()...).Text()
	}
	return c.EvalSha(ctx, s.sha, k.keys(), k.arguments()...).Text()
}
