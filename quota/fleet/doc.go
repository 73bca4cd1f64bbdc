// Package fleet carries the updates of a quota.Tracker to those of other processes, so that the
// rejection of one holds all. An [Exchange] encodes and authenticates updates, and rejects
// replayed ones. A [Bus] transports its messages: a [LocalBus] within a process, package
// throttleredis over Redis, or any publish/subscribe system with a few lines.
//
//	tracker := &quota.Tracker{Exchange: &fleet.Exchange{Bus: bus, Secret: secret}}
//	defer tracker.Close()
//
// # Messages
//
// The content of a message is a JSON object, so that operators can read it, a dot, and a MAC in
// unpadded base64url: the first 12 bytes of HMAC-SHA-256 over "heed news\x00", the account, a zero
// byte and the object. All durations are in microseconds.
//
//	{"from":17,"seq":3,"at":1764000000000000,"route":4711,"say":"shut","wait":60000000,"told":true}.Kx2f…
//
//	from   the Tracker that published the update
//	seq    number of the message among those of the Exchange that published it, from 1 on
//	at     when it was published, in microseconds since the Unix epoch by the clock of the process
//	route  hash of a route that uses the quota
//	say    "shut", "probe", "open", "left" or "here": the Kind of the update, a hold, probe,
//	       release, limits or join
//	wait   the time until the hold ends, or since the probe was sent
//	pause  the time until the next probe, if one was rejected
//	told   true if the server stated the hold
//	left   limits of the quota: name, limit, left, per and reset
//
// Members that are not known are ignored, and so are messages that say something else: processes with earlier
// versions of this package can share.
//
// # Security
//
// Messages do not contain hosts, URLs or credentials, but hashes that depend on the Secret. A
// message that was not made with the Secret, was changed, or belongs to another account is ignored.
// So is one that was received before. A message that is held back on its way is as old as it is,
// see Exchange. A process that knows the Secret can make others wait as long as a server could.
package fleet
