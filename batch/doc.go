// Package batch runs jobs of many requests, and keeps requests for later, at the pace that
// the limits of a server allow.
//
// [Run] calls a function for each item of a job with several workers, and [Map] also
// returns values. The requests of the function go through a [heed.Transport], which delays
// them as its limits require; calls of higher priority that use the same quota go first. A
// checkpoint file lets a job that was killed continue without processing an item twice.
//
//	report, err := batch.Run(ctx, slices.Values(ids), func(ctx context.Context, id string) error {
//		return update(ctx, client, id)
//	}, batch.Options{Workers: 50, Checkpoint: "update.checkpoint"})
//
// An [Outbox] sends requests in order of submission, in the background. Kept on disk, it
// loses no accepted request when the process is killed, the device is offline, or a token is
// invalid for a time.
//
// # Processing an item once
//
// If a process is killed while it waits for a response, it cannot know whether the server
// has processed the request. Both Run and Outbox therefore record on disk, before it is
// sent, that a request that is not idempotent will be sent. What follows a restart depends
// on the request:
//
//   - Requests with a method that is idempotent (RFC 9110, section 9.2.2), or that
//     [heed.RequestOptions] declares idempotent, are repeated.
//   - Requests with a stable Idempotency-Key are repeated with the same key, so that the
//     server recognizes them, as long as the server remembers the key (KeyLifetime).
//   - Other requests are not repeated: the item, or the request, is reported with
//     [ErrInterrupted], because only the caller can find out whether it was processed. The
//     same is true of items whose function sent no request that Run could see.
//
// When the context of Run ends, or the disk is full, no further item begins, and those that
// are being processed have time to finish, so that nothing is interrupted.
//
// The key of an item is [Item.IdempotencyKey]; an Outbox adds keys itself.
package batch
