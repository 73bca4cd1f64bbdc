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

// A script decides on one or several limits. There is one script for each list of
// algorithms, independent of the configuration of the limits, so that Redis stores few
// scripts.
type script struct {
	text, sha       string
	textArg, shaArg any // text and sha as values of type any
}

// algorithms describes the files of that name.
var algorithms = map[string]struct {
	arguments int  // number of arguments of a limit
	divides   bool // it needs division.lua
	format    int  // version of the stored data; raised when a script cannot read the previous one
}{
	"tokenbucket":    {arguments: 3, format: 2},
	"refillbucket":   {arguments: 4, format: 2},
	"leakybucket":    {arguments: 6, format: 2},
	"tickqueue":      {arguments: 4, divides: true},
	"nginx":          {arguments: 3},
	"fixedwindow":    {arguments: 7},
	"slidinglog":     {arguments: 5, divides: true, format: 2},
	"slidingcounter": {arguments: 3, divides: true},
	"concurrency":    {arguments: 2, format: 2},
	"warmup":         {arguments: 9},
	"ban":            {arguments: 5, format: 2},
}

var scripts sync.Map // from lists of algorithms to *script

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
	} else {
		fmt.Fprintf(&text, "\nlocal limits, sizes = {%s}, {%s}\n\n%s", list, strings.Join(sizes, ", "), readLua("multi"))
	}
	fmt.Fprintf(&text, "\nlocal parts = %d\n\n%s", len(names), readLua("tail"))
	return text.String()
}

// readLua returns the text of an embedded Lua file.
func readLua(name string) string {
	text, err := luaFiles.ReadFile("lua/" + name + ".lua")
	if err != nil {
		panic("throttleredis: " + err.Error()) // a programming error, which every test detects
	}
	return string(text)
}

// A processor is a client that processes a command. All clients of go-redis implement it.
type processor interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// run runs s by its hash, and sends its text if the server does not have it.
func (s *script) run(ctx context.Context, st *Store, k *call) (string, error) {
	reply, err := s.send(ctx, st, k, evalSHA, s.shaArg)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		return s.send(ctx, st, k, eval, s.textArg)
	}
	return reply, err
}

// runAll runs s for several claims as run does. args are the command; runAll sets the first two.
func (s *script) runAll(ctx context.Context, st *Store, args []any) (any, error) {
	args[0], args[1] = evalSHA, s.shaArg
	reply, err := sendAll(ctx, st, args)
	if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
		args[0], args[1] = eval, s.textArg
		return sendAll(ctx, st, args)
	}
	return reply, err
}

func sendAll(ctx context.Context, st *Store, args []any) (any, error) {
	first := 3 + args[2].(int)
	if p, ok := st.Client.(processor); ok {
		cmd := redis.NewCmd(ctx, args...)
		cmd.SetFirstKeyPos(3)
		st.process(ctx, p, cmd, func() redis.Cmder { return sentOnceCmd{cmd} })
		return cmd.Result()
	}
	keys := make([]string, 0, first-3)
	for _, key := range args[3:first] {
		keys = append(keys, key.(string))
	}
	if args[0] == eval {
		return st.Client.Eval(ctx, args[1].(string), keys, args[first:]...).Result()
	}
	return st.Client.EvalSha(ctx, args[1].(string), keys, args[first:]...).Result()
}

var evalSHA, eval any = "evalsha", "eval"

// send sends the command with as few allocations as possible: a processor gets the prepared
// command. The copies and allocations of Eval, and those for a reply of unknown type, are a
// third of the cost of a decision on the client.
func (s *script) send(ctx context.Context, st *Store, k *call, command, body any) (string, error) {
	if p, ok := st.Client.(processor); ok {
		cmd := redis.NewStringCmd(ctx, k.command(command, body)...)
		cmd.SetFirstKeyPos(3)
		st.process(ctx, p, cmd, func() redis.Cmder { return sentOnceStringCmd{cmd} })
		return cmd.Result()
	}
	if command == eval {
		return st.Client.Eval(ctx, s.text, k.keys(), k.arguments()...).Text()
	}
	return st.Client.EvalSha(ctx, s.sha, k.keys(), k.arguments()...).Text()
}

// process processes cmd, which holds the error. In Mode Leased the client processes sentOnce of it,
// because units that are returned twice would exceed the limit.
func (s *Store) process(ctx context.Context, p processor, cmd redis.Cmder, sentOnce func() redis.Cmder) {
	if s.Mode == Leased {
		cmd = sentOnce()
	}
	_ = p.Process(ctx, cmd)
}

// A sentOnceCmd is a command that the client does not repeat after an error.
type sentOnceCmd struct{ *redis.Cmd }

// NoRetry implements redis.Cmder.
func (sentOnceCmd) NoRetry() bool { return true }

// A sentOnceStringCmd is a command that the client does not repeat after an error.
type sentOnceStringCmd struct{ *redis.StringCmd }

// NoRetry implements redis.Cmder.
func (sentOnceStringCmd) NoRetry() bool { return true }
