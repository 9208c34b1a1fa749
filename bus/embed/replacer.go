package embed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"kubelot.dev/bus/internal/layout"
)

const (
	// replaceTimeout bounds one replacement.
	replaceTimeout = 5 * time.Second
	// maxGrowth is by how many bytes a value may be larger than the one that it replaces in a full store. What ends a pod
	// adds some hundred.
	maxGrowth = 16 << 10
)

// replacer stores new values of keys that STATE has already, when it is full. The server refuses a value that is larger
// than the one it replaces, though the old one goes with it; but then no pod could end, and nothing would ever make
// room. The limit is raised for this one message. With DiscardNew no limit has the server remove anything.
type replacer struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	states *bound
}

// replaceKeys serves the replacements on nc until it is closed.
func replaceKeys(ctx context.Context, nc *nats.Conn, states *bound, log *slog.Logger) error {
	js, err := jetstream.New(nc)
	if err == nil {
		r := &replacer{nc: nc, js: js, states: states}
		_, err = nc.Subscribe(layout.ReplacePrefix+">", func(m *nats.Msg) {
			answer, err := r.replace(ctx, m)
			if err != nil {
				log.Debug("a value can't be replaced in the full store", "subject", m.Subject, "error", err)
				answer = refusal(err)
			}
			_ = m.Respond(answer) // fails only on a connection that is gone; the writer asks again
		})
	}
	if err == nil {
		err = nc.Flush() // before writers come: one that finds nobody gives its value up for a while
	}
	if err != nil {
		return fmt.Errorf("serve replacements: %w", err)
	}
	return nil
}

// refusal is an answer in JetStream's form.
func refusal(err error) []byte {
	answer, _ := json.Marshal(map[string]any{"error": jetstream.APIError{
		Code: http.StatusServiceUnavailable, ErrorCode: layout.ErrFull, Description: err.Error(),
	}}) // of numbers and a text
	return answer
}

// replace returns the server's answer to the message.
func (r *replacer) replace(ctx context.Context, m *nats.Msg) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, replaceTimeout)
	defer cancel()
	by, err := strconv.ParseInt(m.Header.Get(layout.ReplaceBy), 10, 64)
	if err != nil || time.Now().UnixMilli() > by {
		return nil, errors.New("the time for it is over")
	}
	next := &nats.Msg{Subject: strings.TrimPrefix(m.Subject, layout.ReplacePrefix), Header: m.Header, Data: m.Data}
	next.Header.Del(layout.ReplaceBy)
	r.states.changing.Lock()
	defer r.states.changing.Unlock()
	if time.Now().UnixMilli() > by { // its writer may have said a newer value since
		return nil, errors.New("the time for it is over")
	}
	stream, err := r.js.Stream(ctx, layout.StreamState)
	if err != nil {
		return nil, err
	}
	old, err := stream.GetLastMsgForSubject(ctx, next.Subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, errors.New("the store is full, and takes no new keys")
	}
	if err != nil {
		return nil, err
	}
	if growth := next.Size() - size(old); growth > maxGrowth {
		return nil, fmt.Errorf("the store is full, and the value is larger than the last one by %d bytes", growth)
	}
	next.Header.Set(layout.NATSExpected, strconv.FormatUint(old.Sequence, 10))
	config, kept := stream.CachedInfo().Config, int64(stream.CachedInfo().State.Bytes)
	limit := r.states.limit.Load()
	if most := limit + reserveOf(limit); kept > most {
		return nil, fmt.Errorf("the store is full: it keeps %d bytes, and may keep %d", kept, most)
	}
	// Others may publish meanwhile. What they take of it is little, and the reserve bounds it.
	config.MaxBytes = max(kept, limit) + 2*int64(next.Size()) + maxGrowth
	if _, err := r.js.UpdateStream(ctx, config); err != nil {
		return nil, err
	}
	answer, err := r.nc.RequestMsgWithContext(ctx, next)
	// The limit must be lowered though the time is over.
	lower, cancel := context.WithTimeout(context.WithoutCancel(ctx), replaceTimeout)
	defer cancel()
	config.MaxBytes = limit
	if _, errLower := r.js.UpdateStream(lower, config); err == nil && errLower != nil {
		err = errLower
	}
	if err != nil {
		return nil, err
	}
	return answer.Data, nil
}

// size is what nats.Msg.Size counts of a message.
func size(m *jetstream.RawStreamMsg) int {
	return (&nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}).Size()
}
