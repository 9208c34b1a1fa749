package embed

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// The streams of the bus. The client knows the same names.
const (
	streamState    = "STATE"
	streamEvent    = "EVENT"
	streamPosition = "POSITION"
)

const (
	// stateHistory is how many values of a key are kept: the last one and some for the tap.
	stateHistory = 8
	maxStateSize = 512 << 20
	maxEventSize = 64 << 20
	maxEventAge  = 24 * time.Hour
)

func streamConfigs(crew Crew) []jetstream.StreamConfig {
	return []jetstream.StreamConfig{
		{
			Name: streamState, Subjects: crew.State,
			MaxMsgsPerSubject: stateHistory, MaxBytes: maxStateSize, Discard: jetstream.DiscardNew,
		},
		{
			Name: streamEvent, Subjects: crew.Event,
			MaxBytes: maxEventSize, MaxAge: maxEventAge, Discard: jetstream.DiscardOld,
		},
		{
			Name: streamPosition, Subjects: []string{"position.>"},
			MaxMsgsPerSubject: 1, MaxBytes: 1 << 20, Discard: jetstream.DiscardOld, AllowDirect: true,
		},
	}
}

// prepareStreams makes the streams, or adapts those of another version of the bus.
func prepareStreams(ctx context.Context, js jetstream.JetStream, crew Crew) error {
	for _, config := range streamConfigs(crew) {
		if len(config.Subjects) == 0 {
			continue
		}
		config.Storage, config.Replicas = jetstream.FileStorage, 1
		if _, err := js.CreateOrUpdateStream(ctx, config); err != nil {
			return fmt.Errorf("prepare the bus's stream %s: %w; if its store is damaged, remove it and restart", config.Name, err)
		}
	}
	return nil
}
