package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSummarize_countsSkipsByReason(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, summarize(strings.NewReader(`== .: go test
{"Action":"output","Package":"p","Test":"TestA","Output":"    a_test.go:3: redis-server is not installed: exec: not found\n"}
{"Action":"skip","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:3: redis-server is not installed\n"}
{"Action":"skip","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestC","Output":"    b_test.go:9: only make test-long runs it\n"}
{"Action":"skip","Package":"p","Test":"TestC"}
{"Action":"output","Package":"p","Test":"TestD","Output":"noise\n"}
{"Action":"pass","Package":"p","Test":"TestD"}
{"Action":"output","Package":"p","Output":"PASS\n"}
{"Action":"output","Package":"p","Output":"ok  \tp\t0.1s\n"}
{"Action":"pass","Package":"p"}
{"Action":"output","Package":"q","Output":"?   \tq\t[no test files]\n"}
{"Action":"skip","Package":"q"}
`), &out))
	require.Equal(t, "== .: go test\nok  \tp\t0.1s\n"+
		"skipped: 2 tests because redis-server is not installed\n"+
		"skipped: 1 test because only make test-long runs it\n", out.String())
}

func TestSummarize_showsFailures(t *testing.T) {
	for name, tt := range map[string]struct{ in, out string }{
		"test": {`{"Action":"output","Package":"p","Test":"TestA","Output":"a_test.go:3: wrong\n"}
{"Action":"fail","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Output":"FAIL\tp\n"}
{"Action":"fail","Package":"p"}`, "a_test.go:3: wrong\nFAIL\tp\nfailed: p TestA\n"},
		"crash": {`{"Action":"output","Package":"p","Test":"TestA","Output":"panic: wrong\n"}
{"Action":"output","Package":"p","Output":"FAIL\tp\n"}
{"Action":"fail","Package":"p"}`, "panic: wrong\nFAIL\tp\nfailed: p: panic: wrong\n"},
		"exit": {`{"Action":"output","Package":"p","Output":"FAIL\tp\n"}
{"Action":"fail","Package":"p"}`, "FAIL\tp\nfailed: p\n"},
		"build": {`{"ImportPath":"p","Action":"build-output","Output":"p.go:1: wrong\n"}
{"ImportPath":"p","Action":"build-fail"}`, "p.go:1: wrong\nfailed: p does not build\n"},
	} {
		var out bytes.Buffer
		require.ErrorIs(t, summarize(strings.NewReader(tt.in), &out), errFailed, name)
		require.Equal(t, tt.out, out.String(), name)
	}
}
