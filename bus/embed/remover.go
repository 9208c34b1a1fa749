package embed

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"kubelot.dev/bus/internal/layout"
)

// removeTimeout bounds one removal.
const removeTimeout = 5 * time.Second

// removeKeys removes keys for writers whose tombstones a full store has refused. A writer says nothing else of a key
// meanwhile, and says the tombstone again when it has the answer, so readers learn of it too.
func removeKeys(ctx context.Context, nc *nats.Conn, log *slog.Logger) error {
	js, err := jetstream.New(nc)
	if err == nil {
		_, err = nc.Subscribe(layout.RemovePrefix+">", func(m *nats.Msg) {
			subject := strings.TrimPrefix(m.Subject, layout.RemovePrefix)
			if err := removeKey(ctx, js, subject); err != nil {
				log.Warn("a key can't be removed from the full store", "subject", subject, "error", err)
			}
			_ = m.Respond(nil) // who asked tries again in any case
		})
	}
	if err != nil {
		return fmt.Errorf("serve the removal of keys: %w", err)
	}
	return nil
}

func removeKey(ctx context.Context, js jetstream.JetStream, subject string) error {
	ctx, cancel := context.WithTimeout(ctx, removeTimeout)
	defer cancel()
	stream, err := js.Stream(ctx, layout.StreamState)
	if err != nil {
		return err
	}
	return stream.Purge(ctx, jetstream.WithPurgeSubject(subject))
}
