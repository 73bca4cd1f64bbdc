package heedtest_test

import (
	"net/http"
	"testing"

	"github.com/heed-go/heed"
	"github.com/heed-go/heed/heedtest"
)

func newHeed(base http.RoundTripper) http.RoundTripper { return &heed.Transport{Base: base} }

func newPlain(base http.RoundTripper) http.RoundTripper { return base }

func TestCheck_heed(t *testing.T) { heedtest.Check(t, newHeed) }

func TestRun_plain(t *testing.T) { t.Logf("\n%v", heedtest.Run(t, newPlain)) }
