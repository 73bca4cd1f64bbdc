package throttlehttp

import "net/http"

// A KeyFunc says whose request r is: the key that its limits are counted by. It
// reports false if r does not say. What is done then is decided by who asks, see
// [Rule].
//
// It is called by several goroutines at once and must not keep r or change it. Keys
// may hold any bytes, are as long as the function lets them be, and go to limiters
// only: no answer ever shows one.
type KeyFunc func(r *http.Request) (key string, ok bool)
