// Package pause waits between attempts.
//
// # Guarantees
//
//   - A wait ends with its context.
//   - It needs no other package: small programs import it.
package pause

import (
	"context"
	"time"
)

// For waits for d or the end of ctx.
func For(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
